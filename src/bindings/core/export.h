// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

void bind_export(pybind11::module_& m);

}  // namespace tidegauge::bindings
