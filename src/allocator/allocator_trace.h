// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "allocator/alloc_config.h"
#include "allocator/device_trace.h"
#include "allocator/recorded_run.h"
#include "allocator/trace_replay.h"
#include "allocator/trace_rewind.h"

namespace tidegauge {

/// A recorded trace of torch's allocator for one device, rewound to its beginning:
///
///   trace -> rewind_trace -> follow_recording    what the recording itself says
///                        '-> replay_trace        the same requests, decided by the simulator
///                        '-> replay_fresh        ... with other settings, on an empty device
class AllocatorTrace {
 public:
  /// `config`: the settings of the recorded process. Throws FormatError if the trace contradicts
  /// itself.
  AllocatorTrace(DeviceTrace trace, AllocConfig config);

  const RunFigures& recorded() const { return recorded_.figures; }
  /// True if the events lead to the recorded final layout: none is missing.
  bool is_consistent() const { return recorded_.final_layout == final_layout_; }

  /// Replays with the recorded settings.
  ReplayResult replay(TieRule tie, int64_t total_bytes = kNoLimit) const;
  ReplayResult replay_fresh(const ReplayOptions& options) const;

 private:
  AllocConfig config_;
  RewoundTrace rewound_;
  RecordedRun recorded_;
  Layout final_layout_;
};

}  // namespace tidegauge
