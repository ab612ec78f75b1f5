// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/events/category.h"
#include "core/events/device.h"
#include "core/events/ids.h"
#include "trace/event_source.h"
#include "trace/progress.h"

namespace tidegauge {

/// What a report says of a unit.
struct UnitSummary {
  UnitId id;
  std::string name;
  std::map<Device, CategorySplit> at_peak;  ///< at the instant of each device's peak
  int64_t gather_count = 0;
  int64_t reduce_count = 0;
  int64_t longest_whole_ns = 0;  ///< until it was released, or the recording ended
};

/// The units of a trace, by id. Live and replayed are one path: the events go through a Ledger and
/// the ShardedUnits that a tracker has. One pass, none if nothing was sharded. Throws as the Reader
/// does.
std::vector<UnitSummary> summarize_units(EventSource& source, const Progress& progress = {});

}  // namespace tidegauge
