// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <span>

#include "capture/hooks/kernel_requests.h"

namespace tidegauge::simulation {

/// The arguments and results of an op on a claimed CUDA device.
struct KernelCall {
  std::span<const c10::IValue> arguments;
  std::span<const c10::IValue> results;
};

/// Adds the memory that torch's CUDA kernel of the op requests besides its results.
/// `tools/compare_requests.py` compares these requests with torch's own.
using KernelMemory = void (*)(const KernelCall& call, KernelRequests& requests);

}  // namespace tidegauge::simulation
