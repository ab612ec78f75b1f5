// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/constant_values.h"

#include <ATen/ops/full.h>

#include <cmath>
#include <utility>
#include <vector>

#include "capture/hooks/boxed_tensors.h"
#include "simulate/known_values.h"

namespace tidegauge::simulation::constant_values {
namespace {

using c10::IValue;
using c10::Scalar;

Scalar multiply(const Scalar& value, int64_t count) {
  if (value.isIntegral(/*includeBool=*/true)) return value.toLong() * count;
  return value.toDouble() * static_cast<double>(count);
}

bool is_equal(const Scalar& a, const Scalar& b) { return a.equal(b.toDouble()); }

/// A real tensor with one element and as many dimensions.
at::Tensor make_one(const at::Tensor& tensor, const Scalar& value) {
  return at::full(std::vector<int64_t>(tensor.dim(), 1), value, tensor.scalar_type());
}

/// The op on tensors with one element each; none if a tensor has no constant, or if the op cannot
/// be run that way.
std::optional<Scalar> compute_one(const c10::OperatorHandle& op, const OpTraits& traits,
                                  std::span<const IValue> arguments) {
  for (const IValue& argument : arguments) {
    if (argument.isTensorList()) return std::nullopt;
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const auto value = known_values::find_common(argument.toTensor());
    if (!value || value->isComplex()) return std::nullopt;
  }
  const known_values::OutOfSight guard;
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  for (IValue& argument : stack) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const auto value = known_values::find_common(argument.toTensor());
    argument = make_one(argument.toTensor(), *value);
  }
  if (traits.device_argument >= 0) stack[traits.device_argument] = IValue();
  if (traits.pin_argument >= 0) stack[traits.pin_argument] = IValue();
  try {
    op.callBoxed(stack);
  } catch (const c10::Error&) {  // the CPU has no kernel for these arguments
    return std::nullopt;
  }
  if (stack.size() != 1 || !stack[0].isTensor() || stack[0].toTensor().numel() != 1) return {};
  return stack[0].toTensor().item();
}

const at::Tensor* last_tensor(std::span<const IValue> arguments) {
  const at::Tensor* last = nullptr;
  for (const IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) last = &argument.toTensor();
  }
  return last;
}

/// `x == x` and `x != infinity`, of which isfinite consists, for unknown finite numbers.
std::optional<Scalar> compare_finite(const OpTraits& traits, std::span<const IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (known_values::are_known(self)) return std::nullopt;
  const bool is_eq = traits.name.starts_with("aten::eq");
  if (arguments[1].isTensor()) {
    if (!self.is_same(arguments[1].toTensor())) return std::nullopt;
    return Scalar(is_eq);
  }
  const Scalar other = arguments[1].toScalar();
  if (!other.isFloatingPoint() || !std::isinf(other.toDouble())) return std::nullopt;
  return Scalar(!is_eq);
}

Scalar read_fill_value(const c10::OperatorHandle& op, std::span<const IValue> arguments) {
  auto position = op.schema().argumentIndexWithName("fill_value");
  if (!position) position = op.schema().argumentIndexWithName("value");
  return arguments[*position].toScalar();
}

std::optional<Scalar> find_shared(std::span<const IValue> arguments) {
  std::optional<Scalar> common;
  bool is_common = true;
  for (const IValue& argument : arguments) {
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      const auto value = is_common ? known_values::find_common(tensor) : std::nullopt;
      is_common = value && (!common || is_equal(*common, *value));
      if (is_common) common = value;
    });
  }
  return is_common ? common : std::nullopt;
}

}  // namespace

std::optional<Result> find_result(const c10::OperatorHandle& op, const OpTraits& traits,
                                  std::span<const IValue> arguments) {
  // In place, or not; but not into an `out` argument.
  if (traits.written > 1 || traits.result_count != 1) return std::nullopt;
  std::optional<Scalar> value;
  switch (traits.constant_rule) {
    case ConstantRule::None:
      break;
    case ConstantRule::Zero:
      value = 0;
      break;
    case ConstantRule::One:
      value = 1;
      break;
    case ConstantRule::NotFinite:
      value = false;
      break;
    case ConstantRule::Compare:
      value = compare_finite(traits, arguments);
      if (!value) value = compute_one(op, traits, arguments);
      break;
    case ConstantRule::Fill:
      value = read_fill_value(op, arguments);
      break;
    case ConstantRule::Copy:
      if (const at::Tensor* source = last_tensor(arguments))
        value = known_values::find_common(*source);
      break;
    case ConstantRule::Join:
      value = find_shared(arguments);
      break;
    case ConstantRule::Pointwise:
    case ConstantRule::Select:
    case ConstantRule::Sum:
      value = compute_one(op, traits, arguments);
      break;
  }
  if (!value || value->isComplex()) return std::nullopt;
  const bool is_sum = traits.constant_rule == ConstantRule::Sum;
  return Result{*value, is_sum ? arguments[0].toTensor().numel() : 0};
}

void keep(const at::Tensor& tensor, const Result& result) {
  if (tensor.numel() == 0 || known_values::are_known(tensor)) return;
  const bool is_sum = result.summands > 0;
  known_values::keep_common(
      tensor, is_sum ? multiply(result.value, result.summands / tensor.numel()) : result.value);
}

}  // namespace tidegauge::simulation::constant_values
