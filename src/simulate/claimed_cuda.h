// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"

/// A build of torch without CUDA that says it has CUDA devices, for the tensors of a simulation.
///
/// The fragile part of simulations: it answers at the places where torch asks for devices, the
/// registry of device guards, the hooks of CUDA and the choice of a kernel for attention. Nothing
/// computes there, since every op on a simulated tensor is simulated. Streams are numbers; births
/// carry that of their thread.
///
/// The rest is Python's: `python/tidegauge/_torch/claimed_cuda.py`, which checks the version
/// of torch and tries the whole before it is used.
namespace tidegauge::claimed_cuda {

/// UsageError if this torch has CUDA itself.
TIDEGAUGE_API void install(int device_count);
/// All is as it was.
TIDEGAUGE_API void uninstall();

}  // namespace tidegauge::claimed_cuda
