// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/allocation_failures.h"

#include <pybind11/stl.h>

#include <cstdio>
#include <string>

#include "capture/compat/out_of_memory.h"
#include "capture/hooks/allocation_failure.h"
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
  } catch (py::error_already_set&) {
    // A stream that cannot be written to is no reason to disturb the run.
  }
}

}  // namespace

void bind_allocation_failures(py::module_& m) {
  failure_printer::set_print(&print);
  m.def("allocation_failed", &allocation_failure::notify_message, py::arg("message"),
        py::call_guard<py::gil_scoped_release>());
  m.def(
      "is_out_of_memory",
      [](const std::string& message) { return out_of_memory::read(message).has_value(); },
      py::arg("message"));
}

}  // namespace tidegauge::bindings
