// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tidegauge::simulation {

/// Runs an op that reached our dispatch key. The op is simulated if one of its tensors is
/// simulated, or if it would make a tensor while a simulation is running. Otherwise it runs really.
///
///   call in the cache    build the results from the cached shapes
///   op made of others    run those, each simulated
///   else                 run torch's meta kernel on the meta storages and turn its results into
///                        simulated tensors on the claimed device
///
/// Propagates exceptions from torch's checks. Throws c10::NotImplementedError, which names the op,
/// if it cannot be simulated.
void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace tidegauge::simulation
