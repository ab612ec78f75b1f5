// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <span>
#include <vector>

#include "capture/compat/dispatch_key.h"
#include "simulate/op_traits.h"
#include "tidegauge/export.h"

/// The values of simulated tensors, where they are known: small results of arange, zeros,
/// torch.tensor, and of ops whose inputs are all known. Programs branch on such values (an
/// optimizer's step, positions, masks without padding) and so take the same branch as in a real
/// run.
///
/// Values belong to the storage, so that all its views agree. Random integers (tokens, seeds,
/// permutations) and `rand` come from the simulation's own generator, seeded the same in every
/// simulation; the program's generators are never used. Other random numbers are unknown: a program
/// that branches on them gets the answer of the policy.
namespace tidegauge::simulation::known_values {

/// Larger tensors have known values only if they are all equal (constant_values.h): programs branch
/// on few numbers.
inline constexpr int64_t kMaxFloats = 4096;
inline constexpr int64_t kMaxIntegers = int64_t{1} << 18;

/// Hides ops on real tensors from trackers, simulation, Python modes and autograd.
struct OutOfSight {
  c10::impl::ExcludeDispatchKeyGuard ours_and_python{
      dispatch_key::kBoth |
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
  at::AutoDispatchBelowADInplaceOrView autograd;
};

/// A real tensor that shares the values of `tensor`; undefined if they are unknown. A real tensor
/// is returned itself.
TIDEGAUGE_API at::Tensor find(const at::Tensor& tensor);
/// The value of a tensor with one element; none if it is unknown.
std::optional<c10::Scalar> find_item(const at::Tensor& tensor);
bool are_known(const at::Tensor& tensor);
/// The value of all elements, however many; none if they differ or are unknown.
std::optional<c10::Scalar> find_common(const at::Tensor& tensor);
/// Makes `value` that of all elements of a simulated tensor. No effect for a part of a storage.
void keep_common(const at::Tensor& tensor, const c10::Scalar& value);
/// How many elements are not 0; none if the values are unknown.
std::optional<int64_t> count_nonzero(const at::Tensor& tensor);
/// Makes the values of `real` those of a new simulated tensor, unless there are too many. Both
/// share them: later ops write to them.
void keep(const at::Tensor& simulated, const at::Tensor& real);
/// The same with a copy of the values.
void keep_copy(const at::Tensor& simulated, const at::Tensor& real);

/// True if the op can run on known values: the values of all its tensors are known or not needed.
bool can_follow(const OpTraits& traits, std::span<const c10::IValue> arguments);
/// Runs the op on the known values and returns its real results.
std::vector<c10::IValue> compute(const c10::OperatorHandle& op, const OpTraits& traits,
                                 std::span<const c10::IValue> arguments);
/// Runs the op on the known values and keeps its real results as the values of `results`.
void follow(const c10::OperatorHandle& op, const OpTraits& traits,
            std::span<const c10::IValue> arguments, std::span<const c10::IValue> results);
/// The values of the tensors in `value` are unknown from now on.
void forget(const c10::IValue& value);
/// The same for the tensors that the op wrote to.
void forget_written(const OpTraits& traits, std::span<const c10::IValue> arguments);
/// Seeds the simulation's own generator again.
void reset_generator();

}  // namespace tidegauge::simulation::known_values
