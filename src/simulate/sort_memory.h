// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// Workspaces of the parallel primitives (NVIDIA's CUB) that torch's CUDA kernels use.
namespace tidegauge::simulation {

/// A radix sort of `count` keys with values of the same size, by their lowest `bits` bits.
int64_t sort_pairs_bytes(int64_t count, int64_t item_bytes, int64_t bits);
/// The first of each run of equal keys.
int64_t unique_bytes(int64_t count);
/// Running sums.
int64_t scan_bytes(int64_t count);

}  // namespace tidegauge::simulation
