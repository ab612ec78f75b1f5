// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/core/trace.h"

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "bindings/common/snapshots.h"
#include "bindings/core/post_mortem.h"
#include "core/events/category.h"
#include "core/ledger/ledger.h"
#include "trace/reader.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

py::dict storage_row(const TraceStorage& storage) {
  using py::literals::operator""_a;
  return py::dict("born"_a = storage.born, "freed"_a = storage.freed, "born_ns"_a = storage.born_ns,
                  "freed_ns"_a = storage.freed_ns, "id"_a = storage.id.value,
                  "size_bytes"_a = storage.size_bytes, "device"_a = storage.device,
                  "category"_a = std::string(to_string(storage.category)), "step"_a = storage.step,
                  "module"_a = storage.module.value, "op"_a = storage.op, "dtype"_a = storage.dtype,
                  "shape"_a = storage.shape, "parameter"_a = storage.parameter,
                  "stack"_a = storage.stack);
}

py::object to_text(Device device) { return py::str(to_string(device)); }

void bind_ledger(py::module_& m) {
  py::class_<Ledger>(m, "Ledger", "The state of a run after a replay.")
      .def("current", [](Ledger& self) { return to_mem_rows(self.current(), &to_text); })
      .def("peak", [](Ledger& self) { return to_mem_rows(self.peak(), &to_text); })
      .def("fine_current", [](Ledger& self) { return fine_snapshot(self.current()); })
      .def("fine_peak", [](Ledger& self) { return fine_snapshot(self.peak()); })
      .def("step_peaks",
           [](Ledger& self) {
             py::list result;
             for (const StepPeak& peak : self.step_peaks()) {
               result.append(py::make_tuple(peak.step, fine_snapshot(peak.bytes)));
             }
             return result;
           })
      .def("modules",
           [](Ledger& self) {
             py::list result;
             for (const ModuleId id : self.modules()) result.append(id.value);
             return result;
           })
      .def(
          "module_stats",
          [](Ledger& self, uint32_t module) {
            return to_mem_stats(self.module_stats(ModuleId(module)), &to_text);
          },
          py::arg("module"))
      .def("anomalies", [](Ledger& self) {
        return std::make_pair(self.anomalies().total(), self.anomalies().first());
      });
}

/// For functions that read a file: other threads go on, and Ctrl-C stops a long read.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

template <typename Read>
auto without_gil(Read&& read) {
  const py::gil_scoped_release release;
  return read();
}

/// A row for each element of the list that `read` returns.
template <typename Read, typename ToRow>
py::list rows(Read&& read, const ToRow& to_row) {
  py::list result;
  const auto all = without_gil(std::forward<Read>(read));
  for (const auto& each : all) result.append(to_row(each));
  return result;
}

py::dict gap_row(const TraceGap& gap) {
  using py::literals::operator""_a;
  return py::dict("sequence"_a = gap.sequence, "lost_events"_a = gap.lost_events,
                  "lost_steps"_a = gap.lost_steps, "begin_ns"_a = gap.begin_ns,
                  "end_ns"_a = gap.end_ns, "reason"_a = gap.reason);
}

py::dict drop_row(const TraceDrop& drop) {
  using py::literals::operator""_a;
  return py::dict("sequence"_a = drop.sequence, "events"_a = drop.events, "steps"_a = drop.steps,
                  "begin_ns"_a = drop.begin_ns, "end_ns"_a = drop.end_ns);
}

py::tuple module_row(const TraceModule& module) {
  return py::make_tuple(module.id.value, module.name, module.class_name);
}

void bind_source(py::module_& m) {
  py::class_<EventSource, std::shared_ptr<EventSource>>(
      m, "EventSource", "The events of a run and the names behind their ids.")
      .def("run_facts", &EventSource::run_facts, WithoutGil())
      .def("is_complete", &EventSource::is_complete, WithoutGil())
      .def("event_count", &EventSource::event_count, WithoutGil())
      .def("gaps", [](EventSource& self) { return rows([&] { return self.gaps(); }, &gap_row); })
      .def("drops", [](EventSource& self) { return rows([&] { return self.drops(); }, &drop_row); })
      .def("failures", &EventSource::failures, WithoutGil())
      .def("stacks", &EventSource::stacks, WithoutGil())
      .def("modules",
           [](EventSource& self) { return rows([&] { return self.modules(); }, &module_row); })
      .def("ops",
           [](EventSource& self) {
             py::dict result;
             const auto ops = without_gil([&] { return self.ops(); });
             for (const auto& [id, name] : ops) result[py::int_(id.value)] = name;
             return result;
           })
      .def("tensors", [](EventSource& self) {
        py::dict result;
        const auto tensors = without_gil([&] { return self.tensors(); });
        for (const auto& [id, tensor] : tensors) {
          result[py::int_(id)] = py::make_tuple(tensor.dtype, tensor.shape);
        }
        return result;
      });
}

void bind_reader(py::module_& m) {
  py::class_<Reader, EventSource, std::shared_ptr<Reader>>(
      m, "Reader", "Reads a trace file; see docs/trace-format.md.")
      .def(py::init<const std::string&>(), py::arg("path"), WithoutGil())
      .def("optimizer_steps", &Reader::optimizer_steps, WithoutGil())
      .def("pass_count", &Reader::pass_count)
      .def(
          "replay",
          [](Reader& self, uint64_t last) {
            const py::gil_scoped_release release;
            auto ledger = std::make_unique<Ledger>();
            self.replay(*ledger, last);
            return ledger;
          },
          py::arg("last") = UINT64_MAX)
      .def(
          "continue_replay",
          [](Reader& self, Ledger& ledger, uint64_t first, uint64_t count) {
            const py::gil_scoped_release release;
            uint64_t next = first;
            self.visit_events(first, first + count - 1, [&](const Event& event, uint64_t sequence) {
              ledger.apply(event);
              next = sequence + 1;
            });
            return next;
          },
          py::arg("ledger"), py::arg("first"), py::arg("count"),
          "Applies at most `count` events from number `first` on; returns the next number.")
      .def(
          "storages_alive_at",
          [](Reader& self, uint64_t sequence, size_t limit) {
            return rows([&] { return self.storages_alive_at(sequence, limit); }, &storage_row);
          },
          py::arg("sequence"), py::arg("limit"));
}

}  // namespace

py::list fine_snapshot(const Snapshot& snapshot) {
  py::list result;
  for (const DeviceSplit& entry : snapshot.devices) {
    result.append(py::make_tuple(to_string(entry.device), entry.at.sequence, entry.at.time_ns,
                                 entry.at.step, to_category_dict(entry.split)));
  }
  return result;
}

void bind_trace(py::module_& m) {
  bind_ledger(m);
  bind_post_mortem(m);
  bind_source(m);
  bind_reader(m);
  bind_trace_summary(m);
}

}  // namespace tidegauge::bindings
