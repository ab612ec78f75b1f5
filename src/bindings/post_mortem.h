// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Binds PostMortem and `allocation_failed`, and prints reports to Python's sys.stderr.
void bind_post_mortem(pybind11::module_& m);

}  // namespace tidegauge::bindings
