// SPDX-License-Identifier: BSD-3-Clause
//
// Figures for the trackers of Python; devices are torch.device.
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <vector>

#include "core/events/device.h"
#include "core/ledger/module_stats.h"
#include "core/ledger/snapshot.h"
#include "core/ledger/unit_report.h"

namespace tidegauge::bindings {

pybind11::object to_python(Device device);

/// {device: bytes}
pybind11::dict to_python(const std::map<Device, int64_t>& bytes);

/// {device: {category: bytes}}, without empty categories.
pybind11::dict to_splits(const Snapshot& snapshot);

/// As to_mem_stats, in the categories and states of FSDPMemTracker, without sizes.
pybind11::dict to_fsdp_stats(const ModuleStats& stats);

/// [{"name": ..., "state": ..., "now": {device: {category: bytes}}, "at_peak": the same,
///   "peak_share": {device: fraction},
///   "gatherings": [{"reason": ..., "begun_ns": ..., "complete_ns": ..., "released_ns": ...}],
///   "timeline": [(time_ns, device, {category: bytes}), ...], "reduce_count": ...}, ...]
pybind11::list to_python(const std::vector<UnitReport>& units);

}  // namespace tidegauge::bindings
