// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace tidegauge::simulation {

/// What kernels ask their device about. All claimed devices are alike.
struct ClaimedDevice {
  int major = 9;  ///< compute capability
  int minor = 0;
  int64_t multiprocessors = 132;
  int64_t threads_per_multiprocessor = 2048;
};

/// Of the running simulation, or of the last one that claimed devices.
const ClaimedDevice& claimed_device();
void set_claimed_device(const ClaimedDevice& device);

}  // namespace tidegauge::simulation
