// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/unit_lanes.h"

#include <algorithm>

#include "core/ledger/ledger.h"
#include "core/ledger/sharded_units.h"

namespace tidegauge {

std::vector<LaneChange> make_unit_lanes(std::span<const TraceUnitEvent> unit_events) {
  std::vector<LaneChange> changes;
  ShardedUnits units;
  const Ledger empty;  // states do not depend on bytes
  for (const TraceUnitEvent& recorded : unit_events) {
    const UnitEvent& event = recorded.event;
    if (event.kind == UnitEventKind::StorageOwned || !units.apply(event, empty)) continue;
    LaneChange change{event.unit, recorded.sequence, event.time_ns, {}};
    if (event.kind != UnitEventKind::Reduced) change.state = units.state(event.unit);
    if (!changes.empty()) change.time_ns = std::max(change.time_ns, changes.back().time_ns);
    changes.push_back(change);
  }
  return changes;
}

}  // namespace tidegauge
