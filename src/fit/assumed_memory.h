// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "tidegauge/fit.h"

namespace tidegauge {

/// Which point of the band.
enum class BandPoint : uint8_t { Low, Expected, High };

inline constexpr int kDefaultCompute = 8;  ///< where no device is named

/// What the assumptions depend on.
struct AssumedFor {
  int compute = kDefaultCompute;
  int64_t world_size = 1;
};

/// Sets every member that the caller left open. UsageError for a number below 0 or above 2^60.
Assumptions resolve(const Assumptions& given, AssumedFor target, BandPoint point);

// Both take resolved assumptions.
int64_t workspace_bytes(const Assumptions& resolved);
int64_t total_bytes(const Assumptions& resolved);

}  // namespace tidegauge
