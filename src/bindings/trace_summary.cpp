// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "analyze/summary.h"
#include "analyze/unit_summary.h"
#include "bindings/progress.h"
#include "bindings/snapshots.h"
#include "bindings/trace.h"
#include "core/events/category.h"
#include "trace/reader.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using py::literals::operator""_a;

std::string phase_name(Phase phase) {
  switch (phase) {
    case Phase::Backward:
      return "backward";
    case Phase::Recompute:
      return "recompute";
    default:
      return "forward";
  }
}

py::dict peak_row(const DevicePeak& peak) {
  py::list running;
  for (const RunningCall& call : peak.running) {
    running.append(py::make_tuple(call.module.value, phase_name(call.phase)));
  }
  py::list groups;
  for (const StorageGroup& group : peak.groups) {
    groups.append(py::make_tuple(std::string(to_string(group.category)), group.module.value,
                                 group.op.value, group.tensor, group.count, group.size_bytes));
  }
  return py::dict("device"_a = to_string(peak.device), "sequence"_a = peak.at.sequence,
                  "time_ns"_a = peak.at.time_ns, "step"_a = peak.at.step,
                  "in_optimizer_step"_a = peak.at.in_optimizer_step,
                  "categories"_a = fine_split(peak.split), "running"_a = running,
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
    at_peak[py::str(to_string(device))] = fine_split(split);
  }
  return py::dict("id"_a = unit.id.value, "name"_a = unit.name, "at_peak"_a = at_peak,
                  "gather_count"_a = unit.gather_count, "reduce_count"_a = unit.reduce_count,
                  "longest_whole_ns"_a = unit.longest_whole_ns);
}

/// What `work(progress)` returns, done without the GIL.
template <typename Work>
auto run_unlocked(const std::optional<py::function>& told, const Work& work) {
  const py::gil_scoped_release release;
  return work(tell_python(told));
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
  m.def(
      "summarize",
      [](Reader& reader, const std::optional<py::function>& progress) {
        return to_dict(
            run_unlocked(progress, [&](const Progress& told) { return summarize(reader, told); }));
      },
      py::arg("reader"), py::arg("progress") = py::none(),
      "What a report says of a trace; progress(share) is called now and then.");
  m.def(
      "summarize_units",
      [](Reader& reader, const std::optional<py::function>& progress) {
        const std::vector<UnitSummary> units = run_unlocked(
            progress, [&](const Progress& told) { return summarize_units(reader, told); });
        py::list rows;
        for (const UnitSummary& unit : units) rows.append(unit_row(unit));
        return rows;
      },
      py::arg("reader"), py::arg("progress") = py::none(),
      "What a report says of each unit of sharded parameters.");
  m.def(
      "read_moment",
      [](Reader& reader, py::handle device, uint64_t sequence,
         const std::optional<py::function>& progress) {
        const Device of = to_device(device);
        return peak_row(run_unlocked(progress, [&](const Progress& told) {
          return read_moment(reader, of, sequence, told);
        }));
      },
      py::arg("reader"), py::arg("device"), py::arg("sequence"), py::arg("progress") = py::none(),
      "What was alive on a device after an event, as in `peaks` of summarize.");
}

}  // namespace tidegauge::bindings
