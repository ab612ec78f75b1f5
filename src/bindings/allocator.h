// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// AllocatorTrace: the recorded events of one device, followed and simulated.
void bind_allocator(pybind11::module_& m);

}  // namespace tidegauge::bindings
