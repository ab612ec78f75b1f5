// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include "core/events/device.h"
#include "core/ledger/module_stats.h"
#include "core/ledger/snapshot.h"

namespace tidegauge::bindings {

/// How an extension shows a device to Python: `_core` as text, `_C` as torch.device.
using ShowDevice = pybind11::object (*)(Device);

/// {category: bytes} in all categories, without empty ones.
pybind11::dict to_category_dict(const CategorySplit& split);

/// [(device, bytes in the order of MemTracker's categories), ...]
pybind11::list to_mem_rows(const Snapshot& snapshot, ShowDevice show);
/// [(device, bytes in the order of FSDPMemTracker's categories), ...]
pybind11::list to_fsdp_rows(const Snapshot& snapshot, ShowDevice show);

/// {"sizes": {...}, "snapshots": [(state, [rows, ...]), ...], "local_peak": {device: bytes}}, with
/// MemTracker's categories and states.
pybind11::dict to_mem_stats(const ModuleStats& stats, ShowDevice show);

/// {device: bytes}, of core/ledger/module_stats.h's local_peak.
pybind11::dict local_peak_totals(const ModuleStats& stats, ShowDevice show);

}  // namespace tidegauge::bindings
