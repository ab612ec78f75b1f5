// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Binds `answer_standin_values`.
void bind_standin(pybind11::module_& m);

}  // namespace tidegauge::bindings
