// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include "bindings/mem_tracker.h"

namespace tidegauge::bindings {

/// What the patches of FSDP2 in python/tidegauge call, for all started FSDPMemTrackers at once.
void bind_fsdp(pybind11::module_& m);
/// What one MemTracker knows of units.
void bind_units(MemTrackerClass& tracker);

}  // namespace tidegauge::bindings
