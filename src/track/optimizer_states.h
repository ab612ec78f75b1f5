// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <string>

namespace torch::optim {
class Optimizer;
}

namespace tidegauge {

/// Calls `visit` for each tensor in the states of an optimizer of torch::optim. The states of other
/// optimizers are of classes that only they know, and show no tensors.
void visit_states(const torch::optim::Optimizer& optimizer,
                  c10::function_ref<void(const at::Tensor&)> visit);

/// "torch::optim::SGD"
std::string class_name(const torch::optim::Optimizer& optimizer);

}  // namespace tidegauge
