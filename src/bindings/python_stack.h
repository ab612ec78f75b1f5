// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Tells libtidegauge where Python allocates (capture/birth_stacks.h), and binds
/// `hide_frames_below`.
void bind_python_stack(pybind11::module_& m);

}  // namespace tidegauge::bindings
