// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/memory_trace.h"

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>

#include "bindings/py_mem_tracker.h"
#include "trace/memory_trace.h"

namespace py = pybind11;

namespace tidegauge::bindings {

void bind_memory_trace(py::module_& m) {
  py::class_<MemoryTrace, EventSource, std::shared_ptr<MemoryTrace>>(
      m, "MemoryTrace", py::multiple_inheritance(), "The events of a run, kept in memory.")
      .def(py::init<const std::map<std::string, std::string>&>(), py::arg("facts"))
      .def(
          "record",
          [](const std::shared_ptr<MemoryTrace>& self, PyMemTracker& tracker) {
            tracker.memory().record_to(self);
          },
          py::arg("tracker"), "Takes the events of a tracker that has tracked nothing yet.")
      .def("save", &MemoryTrace::save, py::arg("path"), py::arg("overwrite"),
           py::call_guard<py::gil_scoped_release>(), "Writes a trace file.")
      .def_property_readonly("lost_events", &MemoryTrace::lost_events);
}

}  // namespace tidegauge::bindings
