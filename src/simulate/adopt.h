// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tidegauge/export.h"

namespace tidegauge::simulation {

/// Simulated tensors of the same geometry as real or meta ones, on `device`; those that share a
/// storage go on to do so. What is simulated already is handed back.
TIDEGAUGE_API std::vector<at::Tensor> adopt(const std::vector<at::Tensor>& tensors,
                                            c10::Device device);

}  // namespace tidegauge::simulation
