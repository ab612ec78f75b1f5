// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Binds `allocation_failed` and `is_out_of_memory`, and prints reports to Python's sys.stderr.
void bind_allocation_failures(pybind11::module_& m);

}  // namespace tidegauge::bindings
