// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/snapshots.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <utility>

#include "capture/compat/torch_device.h"
#include "core/ledger/labeller.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

constexpr std::array<std::pair<SizeOf, const char*>, kSizeOfCount> kSizes{{
    {SizeOf::Parameters, "parameter_mem"},
    {SizeOf::Buffers, "buffer_mem"},
    {SizeOf::Inputs, "input_mem"},
    {SizeOf::Outputs, "output_mem"},
}};

}  // namespace

py::object to_python(Device device) {
  py::module_::import("torch");  // the types of its objects; reports do without them
  return py::cast(c10::Device(static_cast<c10::DeviceType>(device.type), device.index));
}

Device to_device(py::handle torch_device) {
  return tidegauge::to_device(torch_device.cast<c10::Device>());
}

namespace {

template <typename Fold>
py::list to_rows(const Snapshot& snapshot, Fold fold) {
  py::list result;
  for (const DeviceSplit& entry : snapshot.devices) {
    const auto split = fold(entry.split);
    py::tuple bytes(split.size());
    for (size_t i = 0; i < split.size(); ++i) bytes[i] = split[i];
    result.append(py::make_tuple(to_python(entry.device), std::move(bytes)));
  }
  return result;
}

}  // namespace

py::list to_python(const Snapshot& snapshot) { return to_rows(snapshot, &to_mem_split); }
py::list to_fsdp_rows(const Snapshot& snapshot) { return to_rows(snapshot, &to_fsdp_split); }

py::dict to_python(const std::map<Device, int64_t>& bytes) {
  py::dict result;
  for (const auto& [device, count] : bytes) result[to_python(device)] = count;
  return result;
}

py::dict to_splits(const Snapshot& snapshot) {
  py::dict result;
  for (const DeviceSplit& entry : snapshot.devices) {
    py::dict split;
    for (size_t i = 0; i < kCategoryCount; ++i) {
      if (entry.split.bytes[i] == 0) continue;
      split[py::str(std::string(to_string(static_cast<Category>(i))))] = entry.split.bytes[i];
    }
    result[to_python(entry.device)] = std::move(split);
  }
  return result;
}

py::dict local_peak_totals(const ModuleStats& stats) {
  py::dict totals;
  if (const Snapshot* peak = local_peak(stats)) {
    for (const DeviceSplit& entry : peak->devices) {
      totals[to_python(entry.device)] = entry.split.total();
    }
  }
  return totals;
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
  result["local_peak"] = local_peak_totals(stats);
  return result;
}

}  // namespace tidegauge::bindings
