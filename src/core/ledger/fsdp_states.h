// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>
#include <vector>

#include "core/ledger/module_stats.h"

namespace tidegauge {

/// One state of a module as FSDPMemTracker lists it. There a module call begins at "Before
/// Pre-Forward" and ends at "After Post-Forward".
struct FsdpState {
  std::string_view name;
  std::vector<Snapshot> calls;
};

/// The states that have entries, in the order in which upstream creates their lists. Upstream keeps
/// one entry of "Before Pre-Forward", that of the first call, and one of "Peak Forward", the
/// maximum of each device over all calls.
std::vector<FsdpState> fsdp_states(const ModuleStats& stats);

/// Adds the recomputes of the module inside a CheckpointWrapper to the statistics of the wrapper:
/// in backward, a recompute calls that module and not the wrapper. No effect if the wrapper has
/// recomputes of its own.
void add_recompute(ModuleStats& wrapper, ModuleStats wrapped);

}  // namespace tidegauge
