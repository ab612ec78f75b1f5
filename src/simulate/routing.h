// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <span>

#include "simulate/op_traits.h"

/// The choices of routers (mixtures of experts) in a simulation. A router takes the largest of its
/// scores, which are unknown; the policy says which experts these are. So the counts of tokens that
/// a program derives from them are known, and add up.
namespace tidegauge::simulation {

/// After topk, max or argmax of unknown scores: makes the chosen indices known. No effect without
/// a routing, or if there are too many scores to choose from for a router.
void route(const OpTraits& traits, std::span<const c10::IValue> arguments,
           std::span<const c10::IValue> results);

}  // namespace tidegauge::simulation
