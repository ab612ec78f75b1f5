// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Recorder: writes a trace file.
void bind_recorder(pybind11::module_& m);
/// MemoryTrace: the events of a run without a file. EventSource (of `_core`) and MemTracker must be
/// bound.
void bind_memory_trace(pybind11::module_& m);

}  // namespace tidegauge::bindings
