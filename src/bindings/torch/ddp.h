// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Binds the function that the patches of DistributedDataParallel call.
void bind_ddp(pybind11::module_& m);

}  // namespace tidegauge::bindings
