// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <span>

#include "simulate/op_traits.h"

/// Tensors of any size whose elements are all equal: zeros, a mask of ones, `isnan` of anything.
/// One number per storage stands for all values, so a program that branches on a mask without
/// padding takes the same branch as in a real run, however long the mask is. Here are the rules for
/// ops; known_values.h keeps the numbers.
namespace tidegauge::simulation::constant_values {

struct Result {
  c10::Scalar value;
  int64_t summands = 0;  ///< of all elements of a sum of such values; 0: not a sum
};
/// The value of all elements of the result of an op; none if it is unknown.
std::optional<Result> find_result(const c10::OperatorHandle& op, const OpTraits& traits,
                                  std::span<const c10::IValue> arguments);
/// Makes the value that of all elements of a simulated tensor, unless its values are known. No
/// effect for a part of a storage.
void keep(const at::Tensor& tensor, const Result& result);

}  // namespace tidegauge::simulation::constant_values
