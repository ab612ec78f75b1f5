// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Binds simulations.
void bind_simulate(pybind11::module_& m);

}  // namespace tidegauge::bindings
