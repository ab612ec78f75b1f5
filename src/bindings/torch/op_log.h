// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// OpLog and OpCall: the ops of a program and what they cost.
void bind_op_log(pybind11::module_& m);

}  // namespace tidegauge::bindings
