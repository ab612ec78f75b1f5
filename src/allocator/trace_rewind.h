// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "allocator/alloc_config.h"
#include "allocator/device_trace.h"

namespace tidegauge {

/// A trace from its beginning on: what was there before the first event, and the events with the
/// pool of each (older recordings do not say it).
struct RewoundTrace {
  Layout initial_layout;
  std::vector<TraceEvent> events;
};

/// Undoes the events from the last to the first, starting at the final layout.
///
/// All but one thing follows: how large a block of a plain large segment was that is freed in the
/// trace and was allocated before it. Torch leaves up to 1 MiB too much in such a block. It ends
///   - at the next active block or the end of the segment, if not more than 1 MiB is left to there
///     (no free block of a plain large segment is that small);
///   - else where the first block begins that is later allocated after it, while it lives;
///   - else, unseen, at its rounded size.
///
/// FormatError, with the number of the event, if an event contradicts the layout.
RewoundTrace rewind_trace(const DeviceTrace& trace, const AllocConfig& config);

}  // namespace tidegauge
