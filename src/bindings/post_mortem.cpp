// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/post_mortem.h"

#include <pybind11/stl.h>

#include <cstdio>
#include <memory>
#include <string>

#include "capture/compat/out_of_memory.h"
#include "capture/hooks/allocation_failure.h"
#include "core/ledger/post_mortem.h"
#include "track/failure_printer.h"
#include "track/post_mortem_page.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using py::literals::operator""_a;

py::list live_rows(const PostMortem& self) {
  py::list rows;
  for (const LiveGroup& group : self.live) {
    rows.append(
        py::dict("device"_a = group.device, "category"_a = std::string(to_string(group.category)),
                 "module"_a = group.module, "op"_a = group.op, "dtype"_a = group.dtype,
                 "shape"_a = group.shape, "stack"_a = group.stack,
                 "storage_count"_a = group.storage_count, "size_bytes"_a = group.size_bytes));
  }
  return rows;
}

/// The op that failed runs without the GIL, in whatever thread.
void print(const std::string& text) {
  if (_Py_IsFinalizing() != 0) {
    std::fputs(text.c_str(), stderr);
    return;
  }
  const py::gil_scoped_acquire gil;
  const py::error_scope error;  // an error of the program's own may be on its way
  try {
    const py::object stream = py::module_::import("sys").attr("stderr");
    if (stream.is_none()) return;
    stream.attr("write")(text);
    stream.attr("flush")();
  } catch (py::error_already_set&) {
    // A stream that cannot be written to is no reason to disturb the run.
  }
}

}  // namespace

void bind_post_mortem(py::module_& m) {
  failure_printer::set_print(&print);
  py::class_<PostMortem, std::shared_ptr<PostMortem>>(
      m, "PostMortem", "The memory at the moment in which an allocation failed.")
      .def_readonly("sequence", &PostMortem::sequence)
      .def_readonly("time_ns", &PostMortem::time_ns)
      .def_readonly("step", &PostMortem::step)
      .def_property_readonly("failed_bytes",
                             [](const PostMortem& self) { return self.failed.size_bytes; })
      .def_property_readonly("device", [](const PostMortem& self) { return self.failed.device; })
      .def_readonly("op", &PostMortem::op)
      .def_readonly("module", &PostMortem::module)
      .def_readonly("message", &PostMortem::message)
      .def_property_readonly("live_bytes", &live_bytes)
      .def_property_readonly("live", &live_rows)
      .def("render", &render_post_mortem)
      .def("__str__", &render_post_mortem)
      .def("__eq__", [](const PostMortem& a, const PostMortem& b) { return a == b; });
  m.def("allocation_failed", &allocation_failure::notify_message, py::arg("message"),
        py::call_guard<py::gil_scoped_release>());
  m.def(
      "is_out_of_memory",
      [](const std::string& message) { return out_of_memory::read(message).has_value(); },
      py::arg("message"));
}

}  // namespace tidegauge::bindings
