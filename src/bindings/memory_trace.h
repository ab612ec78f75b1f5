// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// MemoryTrace: the events of a run without a file. EventSource and MemTracker must be bound.
void bind_memory_trace(pybind11::module_& m);

}  // namespace tidegauge::bindings
