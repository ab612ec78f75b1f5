// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <span>

#include "simulate/op_traits.h"

/// The known values that collectives exchange: numbers of tokens, of elements, of buckets. Only
/// this rank exists, so each other rank is assumed to send what this one sends.
namespace tidegauge::simulation::collective_values {

/// Gives the results of a collective their values, or makes them unknown. `results` may be empty:
/// c10d ops write to their arguments.
void follow(const OpTraits& traits, std::span<const c10::IValue> arguments,
            std::span<const c10::IValue> results);

}  // namespace tidegauge::simulation::collective_values
