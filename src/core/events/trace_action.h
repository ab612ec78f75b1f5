// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidegauge {

/// What the trace of a caching device allocator tells, in the order and with the meaning of torch's
/// c10::CachingDeviceAllocator::TraceEntry.
enum class TraceAction : uint8_t {
  Alloc,
  FreeRequested,  ///< the program has let go of it
  FreeCompleted,  ///< no stream uses it any more
  SegmentAlloc,
  SegmentFree,
  SegmentMap,
  SegmentUnmap,
  Snapshot,
  OutOfMemory,
};
inline constexpr size_t kTraceActionCount = 9;

}  // namespace tidegauge
