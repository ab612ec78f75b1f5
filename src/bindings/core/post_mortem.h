// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// PostMortem: what Reader.failures and the trackers of `_C` return.
void bind_post_mortem(pybind11::module_& m);

}  // namespace tidegauge::bindings
