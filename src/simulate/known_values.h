// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <span>
#include <vector>

#include "simulate/op_traits.h"
#include "tidegauge/export.h"

/// What simulated tensors hold, where it is known: small results of arange, zeros, torch.tensor and
/// of ops on nothing but such. The step of an optimizer, positions, masks without padding: programs
/// branch on them, and so take the branch that they would really take.
///
/// The values belong to the storage, so that views and writes through them agree. Random integers
/// (tokens, seeds, permutations), and `rand`, come from a generator of the simulation's own, the
/// same in each; no generator of the program's is ever drawn from. Other random numbers are not
/// known: whoever branches on them gets the policy's answer.
namespace tidegauge::simulation::known_values {

/// More are not kept: numbers that steer a program are few.
inline constexpr int64_t kMaxFloats = 128;
inline constexpr int64_t kMaxIntegers = int64_t{1} << 18;

/// A real tensor that shares the values of this one; undefined if they are not known. Of a real
/// tensor: itself.
TIDEGAUGE_API at::Tensor find(const at::Tensor& tensor);
/// The one value of a tensor of one element; none if it is not known.
std::optional<c10::Scalar> find_item(const at::Tensor& tensor);
bool are_known(const at::Tensor& tensor);
/// Of how many elements it is known that they are not 0; none if it is not known.
std::optional<int64_t> count_nonzero(const at::Tensor& tensor);
/// Keeps them for the whole storage of a new simulated tensor, if they are few; they are shared
/// with `real`, and written to like it.
void keep(const at::Tensor& simulated, const at::Tensor& real);
/// The same with a copy of them.
void keep_copy(const at::Tensor& simulated, const at::Tensor& real);

/// Whether the op can be run on values: all of its tensors' are known, or it needs none.
bool can_follow(const OpTraits& traits, std::span<const c10::IValue> arguments);
/// Runs it on them.
std::vector<c10::IValue> compute(const c10::OperatorHandle& op, const OpTraits& traits,
                                 std::span<const c10::IValue> arguments);
/// Runs it on them, and keeps what `results` hold.
void follow(const c10::OperatorHandle& op, const OpTraits& traits,
            std::span<const c10::IValue> arguments, std::span<const c10::IValue> results);
/// What the op has written to is no longer known.
void forget_written(const OpTraits& traits, std::span<const c10::IValue> arguments);
/// Random integers begin anew.
void reset_generator();

}  // namespace tidegauge::simulation::known_values
