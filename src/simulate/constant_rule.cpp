// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/constant_rule.h"

#include <ATen/core/enum_tag.h>

#include <unordered_map>

namespace tidegauge::simulation {
namespace {

const std::unordered_map<std::string_view, ConstantRule>& rules() {
  using enum ConstantRule;
  static const auto* rules = new std::unordered_map<std::string_view, ConstantRule>{
      {"aten::zeros", Zero},
      {"aten::zeros_like", Zero},
      {"aten::new_zeros", Zero},
      {"aten::zero_", Zero},
      {"aten::ones", One},
      {"aten::ones_like", One},
      {"aten::new_ones", One},
      {"aten::full", Fill},
      {"aten::full_like", Fill},
      {"aten::new_full", Fill},
      {"aten::fill_.Scalar", Fill},
      {"aten::fill_.Tensor", Copy},
      {"aten::isnan", NotFinite},
      {"aten::isinf", NotFinite},
      {"aten::isposinf", NotFinite},
      {"aten::isneginf", NotFinite},
      {"aten::eq.Tensor", Compare},
      {"aten::eq.Scalar", Compare},
      {"aten::ne.Tensor", Compare},
      {"aten::ne.Scalar", Compare},
      {"aten::clone", Copy},
      {"aten::_to_copy", Copy},
      {"aten::copy_", Copy},
      {"aten::repeat", Copy},
      {"aten::flip", Copy},
      {"aten::roll", Copy},
      {"aten::cat", Join},
      {"aten::stack", Join},
      {"aten::amax", Select},
      {"aten::amin", Select},
      {"aten::max", Select},
      {"aten::min", Select},
      {"aten::mean", Select},
      {"aten::mean.dim", Select},
      {"aten::any", Select},
      {"aten::any.dim", Select},
      {"aten::any.dims", Select},
      {"aten::all", Select},
      {"aten::all.dim", Select},
      {"aten::all.dims", Select},
      {"aten::sum", Sum},
      {"aten::sum.dim_IntList", Sum},
      {"aten::count_nonzero", Sum},
      {"aten::count_nonzero.dim_IntList", Sum},
  };
  return *rules;
}

}  // namespace

ConstantRule find_constant_rule(const c10::OperatorHandle& op, std::string_view name) {
  if (const auto it = rules().find(name); it != rules().end()) return it->second;
  const bool is_pointwise = op.hasTag(at::Tag::pointwise) &&
                            !op.hasTag(at::Tag::nondeterministic_seeded) &&
                            op.schema().returns().size() == 1;
  return is_pointwise ? ConstantRule::Pointwise : ConstantRule::None;
}

}  // namespace tidegauge::simulation
