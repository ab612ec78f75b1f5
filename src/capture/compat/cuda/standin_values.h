// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "tidegauge/export.h"

namespace tidegauge::standin_values {

/// torch's allocator handed out this memory: what was known about its contents no longer holds.
/// Does nothing without the stand-in for CUDA.
void forget(uint64_t address, size_t size_bytes);

}  // namespace tidegauge::standin_values

/// Tells the stand-in for CUDA (src/standin), in a process that has it, which values a program
/// reads and writes, because only torch knows the dtype: unknown floating point numbers are
/// `number`, unknown integers 0, and small tensors that are filled keep what they are filled with.
/// False if the process has no stand-in. It replaces kernels of torch, so only a rehearsal calls
/// it.
extern "C" TIDEGAUGE_API bool tidegauge_answer_standin_values(double number);
