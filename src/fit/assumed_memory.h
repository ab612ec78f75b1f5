// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "tidegauge/fit.h"

namespace tidegauge {

/// A point of the band: its low end, the expected value, its high end.
enum class BandPoint : uint8_t { Low, Expected, High };

inline constexpr int kDefaultCompute = 8;  ///< compute capability if no device is named

/// The facts on which the assumptions depend.
struct AssumedFor {
  int compute = kDefaultCompute;
  int64_t world_size = 1;
};

/// Sets every member that the caller has not set. Throws UsageError for a number below 0 or above
/// 2^60.
Assumptions resolve(const Assumptions& given, AssumedFor target, BandPoint point);

// Both require assumptions from `resolve`.
int64_t workspace_bytes(const Assumptions& resolved);
int64_t total_bytes(const Assumptions& resolved);

}  // namespace tidegauge
