// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/core/page_columns.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "analyze/timeline.h"
#include "analyze/unit_lanes.h"
#include "bindings/core/column.h"
#include "core/events/device.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using py::literals::operator""_a;

/// The time since the start of the recording. A damaged file may have earlier times; they become 0.
uint64_t since(int64_t started_ns, int64_t time_ns) {
  return time_ns > started_ns ? static_cast<uint64_t>(time_ns) - static_cast<uint64_t>(started_ns)
                              : 0;
}

py::dict device_columns(const DeviceTimeline& timeline,
                        const std::unordered_map<StorageId, uint64_t>& names, int64_t started_ns) {
  Column sequence, time;
  for (const uint64_t each : timeline.sequences) sequence.add_growing(each);
  for (const int64_t each : timeline.times_ns) time.add_growing(since(started_ns, each));
  Column context_first, step, activity, running;
  for (const TimelineContext& context : timeline.contexts) {
    context_first.add_growing(context.first);
    step.add(context.step);
    activity.add(static_cast<uint64_t>(context.activity));
    running.add(context.module.value);
  }
  Column first, length, size, category, module, op, tensor, stack, born, name;
  for (const TimelinePiece& piece : timeline.pieces) {
    first.add_growing(piece.first);
    length.add(piece.end - piece.first);
    size.add(static_cast<uint64_t>(piece.size_bytes));
    category.add(static_cast<uint64_t>(piece.category));
    module.add(piece.module.value);
    op.add(piece.op.value);
    tensor.add(piece.tensor);
    stack.add(piece.stack);
    born.add(piece.born);
    const auto named = names.find(piece.storage);
    name.add(named == names.end() ? 0 : named->second);
  }
  return py::dict(
      "device"_a = to_string(timeline.device),
      "moments"_a = py::dict("sequence"_a = sequence.take(), "time"_a = time.take()),
      "contexts"_a = py::dict("first"_a = context_first.take(), "step"_a = step.take(),
                              "activity"_a = activity.take(), "module"_a = running.take()),
      "pieces"_a =
          py::dict("first"_a = first.take(), "length"_a = length.take(), "size"_a = size.take(),
                   "category"_a = category.take(), "module"_a = module.take(), "op"_a = op.take(),
                   "tensor"_a = tensor.take(), "stack"_a = stack.take(), "born"_a = born.take(),
                   "name"_a = name.take()),
      "counts"_a =
          py::dict("moments"_a = timeline.sequences.size(), "contexts"_a = timeline.contexts.size(),
                   "pieces"_a = timeline.pieces.size()));
}

}  // namespace

py::tuple timeline_columns(const Run& run, int64_t started_ns) {
  std::unordered_map<StorageId, uint64_t> names;
  std::vector<std::string> texts;
  for (const auto& [storage, text] : run.source().parameters()) {
    texts.push_back(text);
    names[storage] = texts.size();
  }
  py::list devices;
  for (const DeviceTimeline& timeline : run.timelines()) {
    devices.append(device_columns(timeline, names, started_ns));
  }
  return py::make_tuple(devices, texts);
}

py::dict unit_lane_columns(const Run& run, int64_t started_ns) {
  Column unit, sequence, time, state;
  const std::vector<LaneChange> changes = run.unit_lanes();
  py::dict names;
  for (const auto& [id, name] : run.source().units()) names[py::int_(id.value)] = name;
  for (const LaneChange& change : changes) {
    unit.add(change.unit.value);
    sequence.add_growing(change.sequence);
    time.add_growing(since(started_ns, change.time_ns));
    state.add(change.state ? 1 + static_cast<uint64_t>(*change.state) : 0);
  }
  return py::dict("columns"_a = py::dict("unit"_a = unit.take(), "sequence"_a = sequence.take(),
                                         "time"_a = time.take(), "state"_a = state.take()),
                  "count"_a = changes.size(), "names"_a = names);
}

}  // namespace tidegauge::bindings
