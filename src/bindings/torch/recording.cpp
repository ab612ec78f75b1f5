// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/recording.h"

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "bindings/torch/py_mem_tracker.h"
#include "trace/memory_trace.h"
#include "trace/recorder.h"
#include "trace/termination.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using Facts = std::map<std::string, std::string>;

std::shared_ptr<Recorder> make_recorder(const std::string& path, bool overwrite,
                                        size_t max_waiting_events, int64_t max_file_bytes,
                                        int64_t keep_ns, int64_t keep_steps, Facts facts) {
  RecorderOptions options;
  options.overwrites = overwrite;
  options.max_waiting_events = max_waiting_events;
  options.max_file_bytes = max_file_bytes;
  options.keep = {.time_ns = keep_ns, .steps = keep_steps};
  options.facts = std::move(facts);
  return std::make_shared<Recorder>(path, options);
}

}  // namespace

void bind_recorder(py::module_& m) {
  py::class_<Recorder, std::shared_ptr<Recorder>>(m, "Recorder",
                                                  "Writes a trace file; see tidegauge.Recorder.")
      .def(py::init(&make_recorder), py::arg("path"), py::arg("overwrite"),
           py::arg("max_waiting_events"), py::arg("max_file_bytes"), py::arg("keep_ns"),
           py::arg("keep_steps"), py::arg("facts"))
      .def("flush", &Recorder::flush, py::call_guard<py::gil_scoped_release>())
      .def("close", &Recorder::close, py::call_guard<py::gil_scoped_release>())
      .def(
          "set_fact",
          [](Recorder& self, const std::string& key, const std::string& value) {
            self.set_fact(key, value);
          },
          py::arg("key"), py::arg("value"))
      .def("health", [](Recorder& self) {
        const RecorderHealth health = self.health();
        return py::make_tuple(health.written_events, health.lost_events, health.first_error,
                              health.advice);
      });
  m.def("complete_recordings_at_sigterm", &complete_recordings_at_sigterm);
}

void bind_memory_trace(py::module_& m) {
  py::class_<MemoryTrace, EventSource, std::shared_ptr<MemoryTrace>>(
      m, "MemoryTrace", py::multiple_inheritance(), "The events of a run, kept in memory.")
      .def(py::init<const Facts&>(), py::arg("facts"))
      .def(
          "record",
          [](const std::shared_ptr<MemoryTrace>& self, PyMemTracker& tracker) {
            tracker.engine().record_to(self);
          },
          py::arg("tracker"), "Takes the events of a tracker that has tracked nothing yet.")
      .def("save", &MemoryTrace::save, py::arg("path"), py::arg("overwrite"),
           py::call_guard<py::gil_scoped_release>(), "Writes a trace file.")
      .def_property_readonly("lost_events", &MemoryTrace::lost_events);
}

}  // namespace tidegauge::bindings
