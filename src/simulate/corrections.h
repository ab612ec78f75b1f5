// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <span>
#include <string_view>

namespace tidegauge::simulation {

/// Corrects new simulated tensors of an op whose real kernel lays out its results differently from
/// its meta kernel. `arguments` are those of the call.
using Correction = void (*)(std::span<const c10::IValue> arguments,
                            std::span<const c10::IValue> results);

/// The correction of an op, by its name with overload. Most ops have none: null.
Correction find_correction(std::string_view op);

}  // namespace tidegauge::simulation
