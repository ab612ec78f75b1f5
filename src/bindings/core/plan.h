// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// The search for the choices of blocks (tidegauge/plan.h).
void bind_plan(pybind11::module_& m);

}  // namespace tidegauge::bindings
