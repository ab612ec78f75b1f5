// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string_view>

namespace tidegauge::simulation {

/// What an op does with tensors of equal elements.
enum class ConstantRule : uint8_t {
  None,
  Zero,
  One,
  Fill,       ///< its argument `fill_value` or `value` is the value
  NotFinite,  ///< isnan, isinf: data is assumed to be finite
  Compare,    ///< eq and ne: a finite number equals itself and no infinity
  Pointwise,
  Copy,    ///< the result has the value of the last tensor argument
  Join,    ///< all tensors of a list must have the same value
  Select,  ///< a reduction that returns one of the values: max, any
  Sum,
};
ConstantRule find_constant_rule(const c10::OperatorHandle& op, std::string_view name);

}  // namespace tidegauge::simulation
