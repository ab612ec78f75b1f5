// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "analyze/growth.h"
#include "analyze/summary.h"
#include "analyze/unit_summary.h"
#include "bindings/common/snapshots.h"
#include "bindings/core/page_columns.h"
#include "bindings/core/progress.h"
#include "bindings/core/trace.h"
#include "core/events/category.h"
#include "core/events/device.h"
#include "fit/read_run.h"
#include "trace/reader.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using py::literals::operator""_a;

py::dict peak_row(const DevicePeak& peak) {
  py::list running;
  for (const RunningCall& call : peak.running) {
    running.append(py::make_tuple(call.module.value, std::string(to_string(call.phase))));
  }
  py::list groups;
  for (const StorageGroup& group : peak.groups) {
    groups.append(py::make_tuple(std::string(to_string(group.category)), group.module.value,
                                 group.op.value, group.tensor, group.stack, group.count,
                                 group.size_bytes));
  }
  return py::dict("device"_a = to_string(peak.device), "sequence"_a = peak.at.sequence,
                  "time_ns"_a = peak.at.time_ns, "step"_a = peak.at.step,
                  "in_optimizer_step"_a = peak.at.in_optimizer_step,
                  "categories"_a = to_category_dict(peak.split), "running"_a = running,
                  "groups"_a = groups);
}

py::dict to_dict(const TraceSummary& summary) {
  py::list peaks;
  for (const DevicePeak& peak : summary.peaks) peaks.append(peak_row(peak));
  py::list steps;
  for (const StepPeak& step : summary.steps) {
    steps.append(py::make_tuple(step.step, fine_snapshot(step.bytes)));
  }
  return py::dict(
      "event_count"_a = summary.event_count, "storage_count"_a = summary.storage_count,
      "optimizer_step_count"_a = summary.optimizer_step_count, "step_count"_a = summary.step_count,
      "first_ns"_a = summary.first_ns, "last_ns"_a = summary.last_ns, "peaks"_a = peaks,
      "end"_a = fine_snapshot(summary.end), "steps"_a = steps,
      "anomaly_count"_a = summary.anomaly_count, "first_anomaly"_a = summary.first_anomaly);
}

py::dict unit_row(const UnitSummary& unit) {
  py::dict at_peak;
  for (const auto& [device, split] : unit.at_peak) {
    at_peak[py::str(to_string(device))] = to_category_dict(split);
  }
  return py::dict("id"_a = unit.id.value, "name"_a = unit.name, "at_peak"_a = at_peak,
                  "gather_count"_a = unit.gather_count, "reduce_count"_a = unit.reduce_count,
                  "longest_whole_ns"_a = unit.longest_whole_ns);
}

py::dict growth_row(const Growth& growth) {
  return py::dict("device"_a = to_string(growth.device),
                  "category"_a = std::string(to_string(growth.category)),
                  "module"_a = growth.module.value, "op"_a = growth.op.value,
                  "tensor"_a = growth.tensor, "stack"_a = growth.stack, "count"_a = growth.count,
                  "size_bytes"_a = growth.size_bytes, "since_step"_a = growth.since_step,
                  "last_step"_a = growth.last_step, "bytes_per_step"_a = growth.bytes_per_step);
}

/// Runs `work(progress)` without the GIL.
template <typename Work>
auto run_unlocked(const std::optional<py::function>& progress, const Work& work) {
  const py::gil_scoped_release release;
  return work(notify_python(progress));
}

}  // namespace

void bind_trace_summary(py::module_& m) {
  m.def("categories", [] {
    py::list names;
    for (size_t i = 0; i < kCategoryCount; ++i) {
      names.append(std::string(to_string(static_cast<Category>(i))));
    }
    return names;
  });
  m.def("category_table", [] {
    py::list rows;
    for (size_t i = 0; i < kCategoryCount; ++i) {
      const CategoryRow& row = row_of(static_cast<Category>(i));
      rows.append(py::dict("name"_a = row.name, "place"_a = row.place, "colour"_a = row.colour,
                           "unit_column"_a = row.unit_column, "description"_a = row.description));
    }
    return rows;
  });
  py::class_<ReadRun>(m, "ReadRun", "A run, read in two passes over its events.")
      .def(py::init([](std::shared_ptr<EventSource> source, std::optional<uint64_t> max_moments,
                       bool wants_requests, const std::optional<py::function>& progress) {
             return run_unlocked(progress, [&](const Progress& notify) {
               return std::make_unique<ReadRun>(std::move(source), max_moments, wants_requests,
                                                notify);
             });
           }),
           py::arg("source"), py::arg("max_moments") = py::none(),
           py::arg("wants_requests") = false, py::arg("progress") = py::none())
      .def("summary", [](const ReadRun& self) { return to_dict(self.run().summary()); })
      .def("units",
           [](const ReadRun& self) {
             py::list rows;
             for (const UnitSummary& unit : self.run().units()) rows.append(unit_row(unit));
             return rows;
           })
      .def("growth",
           [](const ReadRun& self) {
             py::list rows;
             for (const Growth& growth : self.run().growth()) rows.append(growth_row(growth));
             return rows;
           })
      .def(
          "timeline_columns",
          [](const ReadRun& self, int64_t started_ns) {
            return timeline_columns(self.run(), started_ns);
          },
          py::arg("started_ns"))
      .def(
          "unit_lane_columns",
          [](const ReadRun& self, int64_t started_ns) {
            return unit_lane_columns(self.run(), started_ns);
          },
          py::arg("started_ns"))
      .def("requests", &ReadRun::requests, py::return_value_policy::reference_internal)
      .def_property_readonly("requested_device", [](const ReadRun& self) {
        return to_string(self.requested_device());
      });
  m.def(
      "read_moment",
      [](EventSource& source, const std::string& device, uint64_t sequence,
         const std::optional<py::function>& progress) {
        const Device of = parse_device(device);
        return peak_row(run_unlocked(progress, [&](const Progress& notify) {
          return read_moment(source, of, sequence, notify);
        }));
      },
      py::arg("source"), py::arg("device"), py::arg("sequence"), py::arg("progress") = py::none(),
      "The live storages of a device after an event, as in `peaks` of ReadRun.summary.");
}

}  // namespace tidegauge::bindings
