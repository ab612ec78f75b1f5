// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/events/trace_action.h"

namespace tidegauge {

/// Identifies a private pool by two numbers, as torch does; (0, 0) is the default pool.
struct PoolId {
  int64_t first = 0;
  int64_t second = 0;

  bool is_default() const { return first == 0 && second == 0; }
  friend auto operator<=>(const PoolId&, const PoolId&) = default;
};

enum class BlockUse : uint8_t {
  Free,
  Allocated,
  PendingFree,  ///< freed by its owner, but another stream may still use it
};

struct BlockState {
  int64_t address = 0;
  int64_t size_bytes = 0;
  int64_t requested_bytes = 0;  ///< 0 if free
  BlockUse use{};

  friend bool operator==(const BlockState&, const BlockState&) = default;
};

/// One piece of device memory from the driver; for an expandable segment, one run of pages.
struct SegmentState {
  int64_t address = 0;
  int64_t size_bytes = 0;
  int64_t stream = 0;
  PoolId pool;
  bool is_small = false;
  bool is_expandable = false;
  std::vector<BlockState> blocks;  ///< without gaps, by address

  friend bool operator==(const SegmentState&, const SegmentState&) = default;
};

/// Memory ends below this address, so that no sum of an address and a size can overflow.
inline constexpr int64_t kAddressEnd = int64_t{1} << 62;

/// All segments of a device, by address.
using Layout = std::vector<SegmentState>;

/// Throws FormatError if segments overlap, blocks do not fill their segment exactly, or two free
/// blocks are neighbours.
void check_layout(const Layout& layout);

/// Puts the active blocks into `segments` (sorted by address), with free blocks between them.
/// Throws FormatError for a block that is outside all segments or overlaps another.
void place_blocks(Layout& segments, std::vector<BlockState> active);

constexpr bool is_segment_action(TraceAction action) {
  return action >= TraceAction::SegmentAlloc && action <= TraceAction::SegmentUnmap;
}
constexpr bool adds_memory(TraceAction action) {
  return action == TraceAction::SegmentAlloc || action == TraceAction::SegmentMap;
}
/// torch's spelling, e.g. `free_requested`.
std::string_view to_string(TraceAction action);

struct TraceEvent {
  TraceAction action{};
  int64_t address = 0;
  int64_t size_bytes = 0;  ///< blocks: as requested; segments: the whole size
  int64_t stream = 0;
  PoolId pool;  ///< the default pool if the recording does not name one

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

/// One device of a snapshot: its last events, and the segments after them.
struct DeviceTrace {
  std::vector<TraceEvent> events;
  Layout final_layout;
};

}  // namespace tidegauge
