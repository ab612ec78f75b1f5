// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>
#include <vector>

#include "simulate/op_traits.h"

/// Ops whose answer depends on what tensors hold: from the values where they are known
/// (known_values.h), else by the policy (session.h), else an error that names the line.
namespace tidegauge::simulation {

/// item(), bool(), `if tensor:`.
c10::IValue read_item(const OpTraits& traits, const at::Tensor& tensor);
/// torch.equal.
c10::IValue compare(const c10::OperatorHandle& op, const OpTraits& traits,
                    std::span<const c10::IValue> arguments);
/// nonzero and its kin.
std::vector<c10::IValue> run_dynamic(const c10::OperatorHandle& op, const OpTraits& traits,
                                     std::span<const c10::IValue> arguments, c10::Device device);
/// The masks among the indices of `self` in index and index_put are replaced by what they select.
void expand_masks(const at::Tensor& self, c10::IValue& indices);

}  // namespace tidegauge::simulation
