// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tidegauge::simulation {

/// Runs an op that has come to the key Fake: simulated if one of its tensors is, or if it would
/// make a tensor while a simulation is on; else really.
///
///   seen before        its results are built from what the cache remembers
///   made of others     runs them, each simulated
///   else               torch's meta kernel runs on the meta storages, and its results are turned
///                      into simulated tensors on the claimed device
///
/// Throws what torch's own checks throw, and c10::NotImplementedError with the name of an op that
/// cannot be simulated.
void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace tidegauge::simulation
