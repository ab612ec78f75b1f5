// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/events/category.h"
#include "core/events/device.h"
#include "core/events/ids.h"
#include "core/ledger/snapshot.h"
#include "tidegauge/unit_facts.h"

namespace tidegauge {

/// One cycle from an all-gather to the release of the gathered parameters.
struct Gathering {
  GatherReason reason{};
  Instant begun;                    ///< the all-gather
  std::optional<Instant> complete;  ///< the unsharded parameters exist
  std::optional<Instant> released;
};

/// The bytes of a unit on a device, from this moment until the next change.
struct UnitChange {
  int64_t time_ns = 0;
  Device device;
  CategorySplit split;
};

struct UnitReport {
  UnitId id;
  std::string name;
  UnitState state{};
  std::map<Device, CategorySplit> now;
  std::map<Device, CategorySplit> at_peak;  ///< at the instant of each device's peak
  std::map<Device, double> peak_share;      ///< share of all bytes at that instant
  std::vector<Gathering> gatherings;        ///< the most recent ones
  std::vector<UnitChange> timeline;         ///< the most recent changes, in the order of events
  int64_t reduce_count = 0;
};

}  // namespace tidegauge
