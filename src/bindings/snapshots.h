// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include "core/device.h"
#include "core/module_stats.h"
#include "core/snapshot.h"

namespace tidegauge::bindings {

pybind11::object to_python(Device device);

/// [(torch.device, bytes in the order of MemTracker's categories), ...]
pybind11::list to_python(const Snapshot& snapshot);

/// {"sizes": {...}, "snapshots": [(state, [snapshot, ...]), ...], "local_peak": {device: bytes}}
pybind11::dict to_python(const ModuleStats& stats);

}  // namespace tidegauge::bindings
