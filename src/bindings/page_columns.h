// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// What the HTML report shows of a trace, as columns of numbers.
void bind_page_columns(pybind11::module_& m);

}  // namespace tidegauge::bindings
