// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidegauge/category.h"
#include "tidegauge/unit_facts.h"

namespace tidegauge {

/// The bytes of one device by fine category.
struct UnitBytes {
  c10::Device device;
  std::array<int64_t, kCategoryCount> bytes{};

  int64_t operator[](Category category) const { return bytes[static_cast<size_t>(category)]; }
  int64_t total_bytes() const {
    int64_t sum = 0;
    for (const int64_t b : bytes) sum += b;
    return sum;
  }
};

/// One cycle from all-gather to release; times of the steady clock.
struct UnitGathering {
  GatherReason reason{};
  int64_t begun_ns = 0;                ///< start of the all-gather
  std::optional<int64_t> complete_ns;  ///< the whole parameters are ready
  std::optional<int64_t> released_ns;
};

/// The bytes of a unit on one device, from a moment until the next one.
struct UnitMoment {
  int64_t time_ns = 0;  ///< time of the last module, node, step or gathering before it
  UnitBytes bytes;
};

/// The memory of one sharded unit; see sharded_unit.h.
struct UnitMemory {
  std::string name;
  UnitState state{};
  std::vector<UnitBytes> now;
  std::vector<UnitBytes> at_peak;  ///< at the moment of each device's peak
  /// The unit's share of each device's peak, between 0 and 1; in the order of `at_peak`.
  std::vector<double> peak_share;
  std::vector<UnitGathering> gatherings;  ///< the last ones, at most 64
  std::vector<UnitMoment> timeline;       ///< the last changes, in chronological order
  int64_t reduce_count = 0;
};

}  // namespace tidegauge
