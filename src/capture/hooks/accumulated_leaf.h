// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <typeinfo>

#include "capture/compat/autograd_node.h"

namespace tidegauge {

/// The leaf whose gradient the node accumulates; null if the node is not an AccumulateGrad.
inline const at::Tensor* accumulated_leaf(const torch::autograd::Node& node) {
  using torch::autograd::AccumulateGrad;
  const bool is_one = node.sequence_nr() == UINT64_MAX && typeid(node) == typeid(AccumulateGrad);
  return is_one ? &static_cast<const AccumulateGrad&>(node).variable : nullptr;
}

}  // namespace tidegauge
