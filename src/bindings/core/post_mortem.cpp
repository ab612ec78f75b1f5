// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/core/post_mortem.h"

#include <pybind11/stl.h>

#include <memory>
#include <string>

#include "core/ledger/post_mortem.h"
#include "core/ledger/post_mortem_page.h"

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

}  // namespace

void bind_post_mortem(py::module_& m) {
  py::class_<PostMortem, std::shared_ptr<PostMortem>>(m, "PostMortem",
                                                      "The live memory when an allocation failed.")
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
}

}  // namespace tidegauge::bindings
