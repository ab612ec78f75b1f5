// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Binds the functions that the patches in python/tidegauge call: module_enter, module_leave,
/// begin_recompute, end_recompute.
void bind_module_calls(pybind11::module_& m);

}  // namespace tidegauge::bindings
