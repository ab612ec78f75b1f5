// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/allocation_failures.h"

#include <pybind11/stl.h>

#include <cstdio>
#include <string>

#include "bindings/torch/containment.h"
#include "capture/compat/out_of_memory.h"
#include "capture/hooks/allocation_failure.h"
#include "capture/hooks/op_hook.h"
#include "track/failure_printer.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

/// The op that failed runs without the GIL, in whatever thread.
void print(const std::string& text) {
  if (is_finalizing()) {
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
  } catch (...) {
    note_exception(op_hook::failures(), "printing to sys.stderr");
  }
}

}  // namespace

void bind_allocation_failures(py::module_& m) {
  failure_printer::set_print(&print);
  m.def(
      "allocation_failed",
      [](py::handle error) {
        std::string message;
        contain_python(op_hook::failures(), "the message of an error",
                       [&] { message = text_of(py::str(error).ptr()); });
        const py::gil_scoped_release without_gil;
        allocation_failure::notify_message(message);
      },
      py::arg("error"));
  m.def(
      "is_out_of_memory",
      [](py::handle message) { return out_of_memory::read(text_of(message.ptr())).has_value(); },
      py::arg("message"));
}

}  // namespace tidegauge::bindings
