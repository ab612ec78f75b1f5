// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/fused_ops.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>

#include <array>
#include <utility>

namespace tidegauge::simulation {
namespace {

using c10::IValue;

/// A gradient of an elementwise function: `mul` makes a tensor of the same shape and layout.
std::vector<IValue> make_product(std::span<const IValue> arguments) {
  return {at::mul(arguments[0].toTensor(), arguments[1].toTensor())};
}

/// The result, and the inverse of the norm of each row in the dtype of the computation.
std::vector<IValue> make_rms_norm(std::span<const IValue> arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const size_t reduced_count = arguments[1].toListRef().size();
  std::vector<int64_t> sizes = input.sizes().vec();
  for (size_t i = sizes.size() - reduced_count; i < sizes.size(); ++i) sizes[i] = 1;
  const auto dtype = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {at::empty_like(input, {}, at::MemoryFormat::Contiguous),
          at::empty(sizes, input.options().dtype(dtype))};
}

constexpr std::array kRows{
    std::pair<std::string_view, FusedOp>{"aten::_fused_rms_norm", &make_rms_norm},
    std::pair<std::string_view, FusedOp>{"aten::silu_backward", &make_product},
    std::pair<std::string_view, FusedOp>{"aten::mish_backward", &make_product},
};

}  // namespace

FusedOp find_fused_op(std::string_view op) {
  for (const auto& [name, function] : kRows) {
    if (name == op) return function;
  }
  return nullptr;
}

std::vector<std::string_view> list_fused_ops() {
  std::vector<std::string_view> names;
  names.reserve(kRows.size());
  for (const auto& row : kRows) names.push_back(row.first);
  return names;
}

}  // namespace tidegauge::simulation
