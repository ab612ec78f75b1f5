// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/allocator_trace.h"

#include <utility>

namespace tidegauge {

AllocatorTrace::AllocatorTrace(DeviceTrace trace, AllocConfig config)
    : config_(std::move(config)),
      rewound_(rewind_trace(trace, config_)),
      recorded_(follow_recording(rewound_, config_)),
      final_layout_(std::move(trace.final_layout)) {}

ReplayResult AllocatorTrace::replay(TieRule tie, int64_t total_bytes) const {
  return replay_trace(rewound_, final_layout_,
                      {.config = config_, .tie = tie, .total_bytes = total_bytes});
}

ReplayResult AllocatorTrace::replay_fresh(const ReplayOptions& options) const {
  return tidegauge::replay_fresh(rewound_, options);
}

}  // namespace tidegauge
