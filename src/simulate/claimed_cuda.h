// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "simulate/claimed_device.h"
#include "tidegauge/export.h"

/// Makes torch report CUDA devices that do not exist, for the tensors of a simulation. A torch with
/// CUDA and one without behave the same, and real devices are not touched: while this is installed,
/// torch finds ours instead.
///
/// This is the fragile part of a simulation. It replaces torch's registry entry for CUDA device
/// guards, its CUDA hooks, the timers of DDP, and the function that chooses an attention kernel.
/// Nothing computes on these devices, because every op on a simulated tensor is simulated. Streams
/// are plain numbers; an allocation records the current stream of its thread. All of this is common
/// to the process, so no other thread may use a real CUDA device meanwhile.
///
/// `python/tidegauge/_torch/claimed_cuda.py` does the Python half: it checks the version of
/// torch and tests the whole arrangement before use.
namespace tidegauge::claimed_cuda {

/// Throws UsageError if it is installed already.
TIDEGAUGE_API void install(int device_count, const simulation::ClaimedDevice& device = {});
/// Restores torch's own entries. CUDA is initialised afterwards only if it was before.
TIDEGAUGE_API void uninstall();

}  // namespace tidegauge::claimed_cuda
