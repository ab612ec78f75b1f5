// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"

/// Makes a torch build without CUDA report CUDA devices, for the tensors of a simulation.
///
/// This is the fragile part of a simulation. It replaces torch's registry entry for CUDA device
/// guards, its CUDA hooks, and the function that chooses an attention kernel. Nothing computes on
/// these devices, because every op on a simulated tensor is simulated. Streams are plain numbers;
/// an allocation records the current stream of its thread.
///
/// `python/tidegauge/_torch/claimed_cuda.py` does the Python half: it checks the version of
/// torch and tests the whole arrangement before use.
namespace tidegauge::claimed_cuda {

/// Throws UsageError if this torch has CUDA itself.
TIDEGAUGE_API void install(int device_count);
/// Restores torch's own entries.
TIDEGAUGE_API void uninstall();

}  // namespace tidegauge::claimed_cuda
