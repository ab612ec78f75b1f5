// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"
#include "tidegauge/simulation.h"

namespace tidegauge::rehearsal {

/// Tells the stand-in for CUDA (src/standin), in a process that has it, which values a program
/// reads and writes, because only torch knows the dtype: by the rules in value_ops.h, and small
/// tensors that are filled keep what they are filled with. Returns false if the process has no
/// stand-in. It replaces kernels of torch for the rest of the process, so only a rehearsal calls
/// it.
TIDEGAUGE_API bool answer_values(const SimulationPolicy& policy);

}  // namespace tidegauge::rehearsal
