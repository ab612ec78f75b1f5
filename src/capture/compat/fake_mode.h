// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "tidegauge/export.h"

/// Python's FakeTensorMode, as far as C++ has to know it. A mode is a pointer to compare.
namespace tidegauge::fake_mode {

/// The mode on this thread's stack of dispatch modes; null if there is none.
const void* active();

/// The mode of a fake tensor; null for any other tensor. May take the GIL.
const void* mode_of(const at::Tensor& tensor);

/// Python is loaded, and `find_mode` asks it for the mode of a tensor.
TIDEGAUGE_API void connect_python(const void* (*find_mode)(const at::Tensor&));

}  // namespace tidegauge::fake_mode
