// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <span>
#include <string_view>

namespace tidegauge::simulation {

/// Where a kernel of torch's makes its results otherwise than the meta kernel says: puts right the
/// new simulated tensors, given what the op was called with.
using Correction = void (*)(std::span<const c10::IValue> arguments,
                            std::span<const c10::IValue> results);

/// By name of the op, with overload; null for nearly all.
Correction find_correction(std::string_view op);

}  // namespace tidegauge::simulation
