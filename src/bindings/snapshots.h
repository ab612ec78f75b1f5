// SPDX-License-Identifier: BSD-3-Clause
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
Device to_device(pybind11::handle torch_device);

/// [(torch.device, bytes in the order of MemTracker's categories), ...]
pybind11::list to_python(const Snapshot& snapshot);

/// {torch.device: bytes}
pybind11::dict to_python(const std::map<Device, int64_t>& bytes);

/// {torch.device: {category: bytes}}, without empty categories.
pybind11::dict to_splits(const Snapshot& snapshot);

/// {"sizes": {...}, "snapshots": [(state, [snapshot, ...]), ...], "local_peak": {device: bytes}}
pybind11::dict to_python(const ModuleStats& stats);

/// {torch.device: bytes}, of core/ledger/module_stats.h's local_peak.
pybind11::dict local_peak_totals(const ModuleStats& stats);

/// The same in the categories and states of FSDPMemTracker, without sizes.
pybind11::list to_fsdp_rows(const Snapshot& snapshot);
pybind11::dict to_fsdp_stats(const ModuleStats& stats);

/// [{"name": ..., "state": ..., "now": {device: {category: bytes}}, "at_peak": the same,
///   "peak_share": {device: fraction},
///   "gatherings": [{"reason": ..., "begun_ns": ..., "complete_ns": ..., "released_ns": ...}],
///   "timeline": [(time_ns, device, {category: bytes}), ...], "reduce_count": ...}, ...]
pybind11::list to_python(const std::vector<UnitReport>& units);

}  // namespace tidegauge::bindings
