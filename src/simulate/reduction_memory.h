// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "capture/hooks/kernel_requests.h"

namespace tidegauge::simulation {

/// How torch's reduction kernel works on elements of one kind of op.
struct Reduction {
  int64_t value_bytes = 4;      ///< a partial result
  int64_t vector_elements = 4;  ///< elements of the input that a thread reads at once
};

/// Adds the memory of torch's CUDA kernel for reductions, which splits a large reduction over
/// blocks of threads: their partial results, and a counter for each result. Follows torch's rules
/// for the shape of blocks. `output`: the result, of `input`'s dimensions (with 1 for reduced ones)
/// or without the reduced ones. `reduced`: bit i: dimension i is reduced.
void add_reduction(const at::Tensor& input, const at::Tensor& output, uint64_t reduced,
                   Reduction kind, KernelRequests& requests);

}  // namespace tidegauge::simulation
