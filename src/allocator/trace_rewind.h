// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "allocator/alloc_config.h"
#include "allocator/device_trace.h"

namespace tidegauge {

/// A trace from its beginning: the layout before the first event, and the events with the pool of
/// each (older recordings do not name it).
struct RewoundTrace {
  Layout initial_layout;
  std::vector<TraceEvent> events;
};

/// Undoes the events from the last to the first, starting at the final layout.
///
/// This determines everything but the size of a block in a plain large segment that was allocated
/// before the trace and is freed in it: torch leaves up to 1 MiB too much in such a block. We
/// assume that it ends
///   - at the next active block or the end of the segment, if that is at most 1 MiB further
///     (no free block of a plain large segment is that small);
///   - else at the start of the first block that is later allocated behind it while it lives;
///   - else, without evidence, at its rounded size.
///
/// Throws FormatError, with the number of the event, if an event contradicts the layout.
RewoundTrace rewind_trace(const DeviceTrace& trace, const AllocConfig& config);

}  // namespace tidegauge
