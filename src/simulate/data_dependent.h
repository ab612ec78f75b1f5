// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>
#include <vector>

#include "simulate/op_traits.h"

/// Ops whose result depends on the values in tensors. The answer comes from the values if they are
/// known (known_values.h), else from the policy (session_state.h), else it is an error that names
/// the line of the program.
namespace tidegauge::simulation {

/// item(), bool(), `if tensor:`.
c10::IValue read_item(const OpTraits& traits, const at::Tensor& tensor);
/// torch.equal.
c10::IValue compare(const c10::OperatorHandle& op, const OpTraits& traits,
                    std::span<const c10::IValue> arguments);
/// nonzero, masked_select, unique and other ops whose result shape depends on values.
std::vector<c10::IValue> run_dynamic(const c10::OperatorHandle& op, const OpTraits& traits,
                                     std::span<const c10::IValue> arguments, c10::Device device);
/// Replaces the masks among the indices of index and index_put by indices of the elements that they
/// select in `self`.
void expand_masks(const at::Tensor& self, c10::IValue& indices);

}  // namespace tidegauge::simulation
