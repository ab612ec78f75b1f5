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

/// Where the simulation first did something else than the recording.
struct Divergence {
  size_t event = 0;  ///< the number of events, if only the final layouts differ
  std::string what;
};

struct ReplayResult {
  RunFigures figures;
  FlatStats stats;
  Layout final_layout;
  std::optional<Divergence> divergence;
};

/// Runs the requests of a recording through the simulator, from the recorded initial state. It is
/// told sizes, streams, pools, frees and when the cache was emptied, and the address that the
/// driver chose for each new segment; which block serves a request, when a segment is needed and
/// how large it is are its own doing. At every event these are compared with the recording, and the
/// layouts at the end.
///
/// A release of segments in a recording is a cue to empty the cache; with `total_bytes`, only where
/// no new segment follows at once, as that release was torch's answer to the lack of memory, and
/// the simulator must find it by itself.
ReplayResult replay_trace(const RewoundTrace& trace, const Layout& final_layout,
                          const ReplayOptions& options);

/// The same requests with other settings. What was live at the start is allocated first, in the
/// order of addresses, into an empty device: what the run had cached before the recording is
/// unknown for other settings. So compare this with the same settings from the same start.
ReplayResult replay_fresh(const RewoundTrace& trace, const ReplayOptions& options);

}  // namespace tidegauge
