// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidegauge::standin_values {

/// torch's allocator handed out this memory: what was known about its contents no longer holds.
/// Does nothing without the stand-in for CUDA.
void forget(uint64_t address, size_t size_bytes);

}  // namespace tidegauge::standin_values
