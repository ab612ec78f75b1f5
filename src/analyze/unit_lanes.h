// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/events/ids.h"
#include "tidegauge/unit_facts.h"
#include "trace/event_source.h"

namespace tidegauge {

/// A change of a unit of sharded parameters.
struct LaneChange {
  UnitId unit;
  uint64_t sequence = 0;  ///< number of the last event before it
  int64_t time_ns = 0;    ///< never decreasing
  /// The new state; none: its gradients were reduced, and the state stays.
  std::optional<UnitState> state;

  friend bool operator==(const LaneChange&, const LaneChange&) = default;
};

/// The state changes of all units in the order of events, by the rules of ShardedUnits. Omits
/// changes without effect. Every unit starts as sharded.
std::vector<LaneChange> make_unit_lanes(std::span<const TraceUnitEvent> unit_events);

}  // namespace tidegauge
