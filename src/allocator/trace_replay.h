// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

#include "allocator/allocator_options.h"
#include "allocator/device_trace.h"
#include "allocator/memory_stats.h"
#include "allocator/run_figures.h"
#include "allocator/trace_rewind.h"

namespace tidegauge {

struct ReplayOptions {
  AllocConfig config;
  TieRule tie = TieRule::SegmentCounter;
  /// ByCaller follows the recording.
  DeferredFrees deferred = DeferredFrees::ByCaller;
  int64_t total_bytes = kNoLimit;
};

/// The first place where the simulation differs from the recording.
struct Divergence {
  size_t event = 0;  ///< index of the event; the number of events if only the final layouts differ
  std::string what;
};

struct ReplayResult {
  RunFigures figures;
  FlatStats stats;
  Layout final_layout;
  std::optional<Divergence> divergence;
};

/// Runs the requests of a recording through the simulator, from the recorded initial state. The
/// simulator gets sizes, streams, pools, frees, the moments when the cache was emptied, and the
/// address that the driver chose for each new segment. It decides itself which block serves a
/// request, when it needs a segment, and how large that is. Compares these decisions with the
/// recording at every event, and the layouts at the end.
///
/// At a recorded release of segments the simulator empties its cache. With `total_bytes`, it does
/// not if a new segment follows at once that needs the release: then torch released them because
/// memory ran out or garbage was collected, which the simulator must reproduce by itself. (A
/// program that empties the cache at such a moment looks the same: with a limit for splits, a
/// threshold for garbage or expandable segments, the simulator may then release less, and
/// diverges.)
ReplayResult replay_trace(const RewoundTrace& trace, const Layout& final_layout,
                          const ReplayOptions& options);

/// Simulates the same requests with other settings. Starts from an empty device and allocates the
/// initially live blocks in the order of addresses: the cache that these settings would have left
/// is unknown. To compare two settings, call this function for both.
ReplayResult replay_fresh(const RewoundTrace& trace, const ReplayOptions& options);

}  // namespace tidegauge
