// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include "allocator/run_figures.h"

namespace tidegauge::bindings {

pybind11::dict to_dict(const RunFigures& figures);

/// Binds AllocatorTrace: the recorded allocator events of one device, and their simulations.
void bind_allocator(pybind11::module_& m);

}  // namespace tidegauge::bindings
