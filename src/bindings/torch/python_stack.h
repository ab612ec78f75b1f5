// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace tidegauge::bindings {

/// Sets the collector of Python stacks (capture/modules/birth_stacks.h) and binds
/// `hide_frames_below`.
void bind_python_stack(pybind11::module_& m);

/// The innermost line of Python code outside torch and tidegauge, as "train.py:12"; empty if there
/// is none. Takes the GIL.
std::string user_line();

}  // namespace tidegauge::bindings
