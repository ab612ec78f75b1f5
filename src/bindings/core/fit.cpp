// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/core/fit.h"

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/core/allocator.h"
#include "bindings/core/column.h"
#include "core/events/device.h"
#include "core/util/device_blocks.h"
#include "fit/assumed_memory.h"
#include "fit/judge.h"
#include "fit/run_requests.h"
#include "tidegauge/fit.h"
#include "trace/reader.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using py::literals::operator""_a;

// Tuples in the order of the members of tidegauge.allocator.DeviceModel and Assumptions.
using ModelRow = std::tuple<std::string, std::string, int64_t, int, int, int, std::string>;
using AssumptionsRow =
    std::tuple<std::optional<int64_t>, int64_t, std::optional<int64_t>, std::optional<int64_t>>;

ModelRow to_row(const DeviceModel& model) {
  return {model.key,     model.name,          model.memory_bytes,
          model.compute, model.compute_minor, model.multiprocessors,
          model.source};
}
DeviceModel from_row(const ModelRow& row) { return std::make_from_tuple<DeviceModel>(row); }

std::unique_ptr<RunRequests> read_file(const std::string& path, const std::string& device) {
  const Device of = parse_device(device);
  const py::gil_scoped_release released;
  Reader reader(path);
  return std::make_unique<RunRequests>(
      std::make_shared<const RequestStream>(read_requests(reader, of)));
}

const SimulatedRun& run(RunRequests& requests, const std::string& settings,
                        const std::string& tie) {
  Replays& replays = requests.replays(parse_tie_rule(tie));
  const py::gil_scoped_release released;
  return replays.run(settings);
}

py::dict simulate(RunRequests& requests, const std::string& settings, const std::string& tie) {
  return to_dict(run(requests, settings, tie).figures);
}

py::dict to_dict(const StepFigures& figures) {
  return py::dict("requested_bytes"_a = figures.requested_bytes,
                  "allocated_bytes"_a = figures.allocated_bytes,
                  "active_bytes"_a = figures.active_bytes,
                  "reserved_bytes"_a = figures.reserved_bytes, "segments"_a = figures.segments);
}

/// When the first step begins, then the peaks of each step.
py::list step_figures(RunRequests& requests, const std::string& settings, const std::string& tie) {
  const SimulatedRun& found = run(requests, settings, tie);
  py::list rows;
  rows.append(to_dict(found.before_steps));
  for (const StepFigures& step : found.steps) rows.append(to_dict(step));
  return rows;
}

py::dict to_dict(const Verdict& verdict) {
  py::list layers;
  for (const Layer& layer : verdict.layers) {
    py::object basis = py::none();
    if (layer.basis != Basis::Sum) basis = py::str(std::string(to_string(layer.basis)));
    layers.append(
        py::make_tuple(layer.name, layer.size_bytes, basis, layer.low_bytes, layer.high_bytes));
  }
  py::object name = py::none();
  if (verdict.fit) name = py::str(std::string(to_string(*verdict.fit)));
  py::object smallest = py::none();
  if (verdict.smallest) smallest = py::cast(to_row(*verdict.smallest));
  const Assumptions& assumed = verdict.assumptions;
  return py::dict(
      "name"_a = name, "needed_bytes"_a = verdict.needed_bytes, "low_bytes"_a = verdict.low_bytes,
      "high_bytes"_a = verdict.high_bytes, "margin_bytes"_a = verdict.margin_bytes,
      "failed_requests"_a = verdict.failed_requests, "layers"_a = layers,
      "assumptions"_a = py::make_tuple(assumed.context_bytes, assumed.cublas_workspaces,
                                       assumed.cublas_workspace_bytes, assumed.communication_bytes),
      "smallest"_a = smallest);
}

py::dict judge_requests(RunRequests& requests, const std::optional<ModelRow>& device,
                        const std::optional<std::string>& alloc_conf,
                        const AssumptionsRow& assumptions,
                        const std::optional<std::vector<ModelRow>>& catalogue,
                        const std::optional<std::string>& tie,
                        const std::map<std::string, std::string>& facts) {
  FitOptions options;
  if (device) options.device = from_row(*device);
  options.alloc_conf = alloc_conf;
  options.assumptions = {std::get<0>(assumptions), std::get<1>(assumptions),
                         std::get<2>(assumptions), std::get<3>(assumptions)};
  if (catalogue) {
    options.catalogue.emplace();
    for (const ModelRow& row : *catalogue) options.catalogue->push_back(from_row(row));
  }
  Replays& replays = requests.replays(choose_tie_rule(tie, facts));
  Verdict verdict;
  {
    const py::gil_scoped_release released;
    verdict = judge(replays, read_run_kind(facts), options);
  }
  return to_dict(verdict);
}

/// The reserved bytes over the run, as columns for the HTML report.
py::dict reserved_columns(RunRequests& requests, const std::string& settings,
                          const std::string& tie) {
  const SimulatedRun& found = run(requests, settings, tie);
  Column sequence, size;
  for (const ReservedChange& change : found.reserved) {
    sequence.add_growing(change.sequence);
    size.add(static_cast<uint64_t>(change.reserved_bytes));
  }
  return py::dict("columns"_a = py::dict("sequence"_a = sequence.take(), "size"_a = size.take()),
                  "count"_a = found.reserved.size());
}

/// The most reserved bytes from one number of events to another, for each pair.
std::vector<int64_t> reserved_peaks(RunRequests& requests, const std::string& settings,
                                    const std::string& tie,
                                    const std::vector<std::pair<uint64_t, uint64_t>>& spans) {
  Replays& replays = requests.replays(parse_tie_rule(tie));
  const py::gil_scoped_release released;
  const SimulatedRun& run = replays.run(settings);
  std::vector<int64_t> peaks(spans.size(), 0);
  for (size_t i = 0; i < spans.size(); ++i) {
    for (const ReservedChange& change : run.reserved) {
      if (change.sequence > spans[i].second) break;
      const bool is_before = change.sequence <= spans[i].first;
      peaks[i] = is_before ? change.reserved_bytes : std::max(peaks[i], change.reserved_bytes);
    }
  }
  return peaks;
}

/// The segments by address, and their blocks, as columns for the HTML report.
py::dict layout_columns(RunRequests& requests, const std::string& settings,
                        const std::string& tie) {
  Replays& replays = requests.replays(parse_tie_rule(tie));
  Layout layout;
  {
    const py::gil_scoped_release released;
    layout = replays.layout_at_peak(settings);
  }
  Column stream_column, is_small, is_expandable, block_count, size, requested, use;
  size_t blocks = 0;
  for (const SegmentState& segment : layout) {
    stream_column.add(static_cast<uint64_t>(segment.stream));
    is_small.add(segment.is_small);
    is_expandable.add(segment.is_expandable);
    block_count.add(segment.blocks.size());
    blocks += segment.blocks.size();
    for (const BlockState& block : segment.blocks) {
      size.add(static_cast<uint64_t>(block.size_bytes));
      requested.add(static_cast<uint64_t>(block.requested_bytes));
      use.add(static_cast<uint64_t>(block.use));
    }
  }
  return py::dict(
      "segments"_a =
          py::dict("stream"_a = stream_column.take(), "is_small"_a = is_small.take(),
                   "is_expandable"_a = is_expandable.take(), "block_count"_a = block_count.take()),
      "blocks"_a =
          py::dict("size"_a = size.take(), "requested"_a = requested.take(), "use"_a = use.take()),
      "counts"_a = py::dict("segments"_a = layout.size(), "blocks"_a = blocks));
}

}  // namespace

void bind_fit(py::module_& m) {
  m.def(
      "check_alloc_config", [](const std::string& settings) { parse_alloc_config(settings); },
      py::arg("settings"), "Raises ValueError with torch's message for settings that it rejects.");
  m.def("device_unit_bytes", &device_unit_bytes,
        "The unit of torch's allocations on a CUDA device, in bytes.");
  m.def(
      "device_catalogue",
      [] {
        std::vector<ModelRow> rows;
        for (const DeviceModel& model : device_catalogue()) rows.push_back(to_row(model));
        return rows;
      },
      "The members of DeviceModel of every device, smallest memory first.");
  m.def(
      "tie_rules",
      [] {
        py::dict versions;
        for (const TieRuleRow& row : tie_rules()) {
          versions[py::str(std::string(row.name))] = std::string(row.versions);
        }
        return versions;
      },
      "The versions of torch by the name of the tie rule that they use.");
  m.def(
      "choose_tie_rule",
      [](const std::optional<std::string>& name, const std::map<std::string, std::string>& facts) {
        return std::string(to_string(choose_tie_rule(name, facts)));
      },
      py::arg("name"), py::arg("facts"),
      "`name`, or else the rule of the torch that recorded the trace with these facts.");
  m.def("choose_device", &choose_device, py::arg("peaks"), py::arg("wanted"),
        "The device whose tensors are judged. Raises ValueError if `wanted` has no peak.");
  m.def(
      "resolve_assumptions",
      [](const AssumptionsRow& row, int compute, int64_t world_size) {
        const Assumptions given{std::get<0>(row), std::get<1>(row), std::get<2>(row),
                                std::get<3>(row)};
        const Assumptions all = resolve(given, {compute, world_size}, BandPoint::Expected);
        return AssumptionsRow(all.context_bytes, all.cublas_workspaces, all.cublas_workspace_bytes,
                              all.communication_bytes);
      },
      py::arg("assumptions"), py::arg("compute"), py::arg("world_size"),
      "The assumptions with every member set.");
  py::class_<RunRequests>(m, "RunRequests", "The allocation requests of a run to one device.")
      .def(py::init(&read_file), py::arg("path"), py::arg("device"))
      .def_property_readonly("request_count",
                             [](const RunRequests& self) { return self.stream().request_count(); })
      .def("simulate", &simulate, py::arg("settings"), py::arg("tie"))
      .def("step_figures", &step_figures, py::arg("settings"), py::arg("tie"))
      .def("judge", &judge_requests, py::arg("device"), py::arg("alloc_conf"),
           py::arg("assumptions"), py::arg("catalogue"), py::arg("tie"), py::arg("facts"))
      .def("reserved_peaks", &reserved_peaks, py::arg("settings"), py::arg("tie"), py::arg("spans"))
      .def("reserved_columns", &reserved_columns, py::arg("settings"), py::arg("tie"))
      .def("layout_at_peak", &layout_columns, py::arg("settings"), py::arg("tie"));
}

}  // namespace tidegauge::bindings
