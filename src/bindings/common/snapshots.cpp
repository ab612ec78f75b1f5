// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/common/snapshots.h"

#include <pybind11/stl.h>

#include <array>
#include <string>
#include <utility>

#include "core/events/category.h"
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

template <typename Fold>
py::list to_rows(const Snapshot& snapshot, Fold fold, ShowDevice show) {
  py::list result;
  for (const DeviceSplit& entry : snapshot.devices) {
    const auto split = fold(entry.split);
    py::tuple bytes(split.size());
    for (size_t i = 0; i < split.size(); ++i) bytes[i] = split[i];
    result.append(py::make_tuple(show(entry.device), std::move(bytes)));
  }
  return result;
}

}  // namespace

py::dict to_category_dict(const CategorySplit& split) {
  py::dict result;
  for (size_t i = 0; i < kCategoryCount; ++i) {
    if (split.bytes[i] == 0) continue;
    result[py::str(std::string(to_string(static_cast<Category>(i))))] = split.bytes[i];
  }
  return result;
}

py::list to_mem_rows(const Snapshot& snapshot, ShowDevice show) {
  return to_rows(snapshot, &to_mem_split, show);
}

py::list to_fsdp_rows(const Snapshot& snapshot, ShowDevice show) {
  return to_rows(snapshot, &to_fsdp_split, show);
}

py::dict to_mem_stats(const ModuleStats& stats, ShowDevice show) {
  py::dict sizes;
  for (const auto& [size_of, name] : kSizes) {
    if (const auto bytes = stats.size_bytes(size_of)) sizes[name] = *bytes;
  }
  py::list snapshots;
  for (const ModuleState state : states_in_order(stats)) {
    py::list calls;
    for (const ModuleSnapshot& call : stats[state]) calls.append(to_mem_rows(call.bytes, show));
    snapshots.append(py::make_tuple(std::string(to_string(state)), std::move(calls)));
  }
  py::dict result;
  result["sizes"] = std::move(sizes);
  result["snapshots"] = std::move(snapshots);
  result["local_peak"] = local_peak_totals(stats, show);
  return result;
}

py::dict local_peak_totals(const ModuleStats& stats, ShowDevice show) {
  py::dict totals;
  if (const Snapshot* peak = local_peak(stats)) {
    for (const DeviceSplit& entry : peak->devices) {
      totals[show(entry.device)] = entry.split.total();
    }
  }
  return totals;
}

}  // namespace tidegauge::bindings
