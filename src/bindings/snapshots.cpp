// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/snapshots.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "core/labeller.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// When the list of a state came to be: its first call began, or ended for the states after it.
/// Where that is one moment, the order of the array decides, as upstream's does.
constexpr std::array kStates{
    ModuleState::PeakForward,  ModuleState::PreForward,    ModuleState::PostForward,
    ModuleState::PreForwardAc, ModuleState::PostForwardAc, ModuleState::PeakBackward,
    ModuleState::PreBackward,  ModuleState::PostBackward,
};

uint64_t first_moment(const ModuleStats& stats, ModuleState state) {
  const bool is_end = state == ModuleState::PostForward || state == ModuleState::PostForwardAc ||
                      state == ModuleState::PostBackward;
  const ModuleSnapshot& first = stats[state].front();
  return is_end ? first.bytes.taken.sequence : first.call;
}

std::vector<ModuleState> states_in_order(const ModuleStats& stats) {
  std::vector<ModuleState> states;
  std::copy_if(kStates.begin(), kStates.end(), std::back_inserter(states),
               [&](ModuleState state) { return !stats[state].empty(); });
  std::stable_sort(states.begin(), states.end(), [&](ModuleState a, ModuleState b) {
    return first_moment(stats, a) < first_moment(stats, b);
  });
  return states;
}

constexpr std::array<std::pair<SizeOf, const char*>, kSizeOfCount> kSizes{{
    {SizeOf::Parameters, "parameter_mem"},
    {SizeOf::Buffers, "buffer_mem"},
    {SizeOf::Inputs, "input_mem"},
    {SizeOf::Outputs, "output_mem"},
}};

py::dict local_peak(const ModuleStats& stats) {
  py::dict peak;
  const auto& backward = stats[ModuleState::PeakBackward];
  const auto& list = backward.empty() ? stats[ModuleState::PeakForward] : backward;
  if (list.empty()) return peak;
  for (const DeviceSplit& entry : list.back().bytes.devices) {
    peak[to_python(entry.device)] = entry.split.total();
  }
  return peak;
}

}  // namespace

py::object to_python(Device device) {
  return py::cast(c10::Device(static_cast<c10::DeviceType>(device.type), device.index));
}

py::list to_python(const Snapshot& snapshot) {
  py::list result;
  for (const DeviceSplit& entry : snapshot.devices) {
    const MemSplit split = to_mem_split(entry.split);
    py::tuple bytes(split.size());
    for (size_t i = 0; i < split.size(); ++i) bytes[i] = split[i];
    result.append(py::make_tuple(to_python(entry.device), std::move(bytes)));
  }
  return result;
}

py::dict to_python(const ModuleStats& stats) {
  py::dict sizes;
  for (const auto& [size_of, name] : kSizes) {
    if (const auto bytes = stats.size_bytes(size_of)) sizes[name] = *bytes;
  }
  py::list snapshots;
  for (const ModuleState state : states_in_order(stats)) {
    py::list calls;
    for (const ModuleSnapshot& call : stats[state]) calls.append(to_python(call.bytes));
    snapshots.append(py::make_tuple(std::string(to_string(state)), std::move(calls)));
  }
  py::dict result;
  result["sizes"] = std::move(sizes);
  result["snapshots"] = std::move(snapshots);
  result["local_peak"] = local_peak(stats);
  return result;
}

}  // namespace tidegauge::bindings
