// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/simulated_depth.h"

namespace tidegauge {

thread_local constinit int SimulatedDepth::depth_ = 0;

bool SimulatedDepth::any() { return depth_ > 0; }

}  // namespace tidegauge
