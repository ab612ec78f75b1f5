// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tidegauge/export.h"

namespace tidegauge::simulation {

/// Makes simulated tensors on `device` with the sizes and strides of real or meta tensors. Tensors
/// that share a storage still share one afterwards. Simulated tensors are returned unchanged.
TIDEGAUGE_API std::vector<at::Tensor> adopt(const std::vector<at::Tensor>& tensors,
                                            c10::Device device);

}  // namespace tidegauge::simulation
