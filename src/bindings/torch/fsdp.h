// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include "bindings/torch/py_mem_tracker.h"

namespace tidegauge::bindings {

/// Binds the functions that the patches of FSDP2 call. They notify all started FSDPMemTrackers.
void bind_fsdp(pybind11::module_& m);
/// Adds the methods about units to `_C.MemTracker`.
void bind_units(PyMemTrackerClass& tracker);

}  // namespace tidegauge::bindings
