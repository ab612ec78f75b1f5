// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <string>

namespace torch::optim {
class Optimizer;
}

namespace tidegauge {

/// `parameter`: the TensorImpl of the parameter that the state is about; only compare it.
using VisitState = c10::function_ref<void(const void* parameter, const at::Tensor& state)>;

/// Visits each tensor in the state of a torch::optim optimizer. The state classes of other
/// optimizers are unknown here, so their tensors are skipped.
void visit_states(const torch::optim::Optimizer& optimizer, VisitState visit);

/// "torch::optim::SGD"
std::string class_name(const torch::optim::Optimizer& optimizer);

}  // namespace tidegauge
