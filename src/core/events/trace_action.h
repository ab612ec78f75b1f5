// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidegauge {

/// The actions in the trace of a caching device allocator, with the order and meaning of
/// c10::CachingDeviceAllocator::TraceEntry.
enum class TraceAction : uint8_t {
  Alloc,
  FreeRequested,  ///< the program released it
  FreeCompleted,  ///< the last stream that used it is done
  SegmentAlloc,
  SegmentFree,
  SegmentMap,
  SegmentUnmap,
  Snapshot,
  OutOfMemory,
};
inline constexpr size_t kTraceActionCount = 9;

}  // namespace tidegauge
