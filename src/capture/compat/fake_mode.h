// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "tidegauge/export.h"

/// The part of Python's FakeTensorMode that C++ needs. A mode is a pointer that is only compared.
namespace tidegauge::fake_mode {

/// The FakeTensorMode on this thread's stack of dispatch modes; null if there is none.
const void* active();

/// The mode of a fake tensor; null for any other tensor. May take the GIL.
const void* mode_of(const at::Tensor& tensor);

/// Call when Python is loaded. `find_mode` asks Python for the mode of a tensor.
TIDEGAUGE_API void connect_python(const void* (*find_mode)(const at::Tensor&));

}  // namespace tidegauge::fake_mode
