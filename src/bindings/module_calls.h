// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// module_enter/module_leave, begin/end_recompute: what the patches in python/tidegauge call.
void bind_module_calls(pybind11::module_& m);

}  // namespace tidegauge::bindings
