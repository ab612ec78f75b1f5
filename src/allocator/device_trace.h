// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/events/trace_action.h"

namespace tidegauge {

/// Names a private pool as torch does, by two numbers; (0, 0) is the default pool.
struct PoolId {
  int64_t first = 0;
  int64_t second = 0;

  bool is_default() const { return first == 0 && second == 0; }
  friend auto operator<=>(const PoolId&, const PoolId&) = default;
};

enum class BlockUse : uint8_t {
  Free,
  Allocated,
  PendingFree,  ///< given back, but another stream may still use it
};

struct BlockState {
  int64_t address = 0;
  int64_t size_bytes = 0;
  int64_t requested_bytes = 0;  ///< 0 if free
  BlockUse use{};

  friend bool operator==(const BlockState&, const BlockState&) = default;
};

/// One piece of device memory got from the driver; of an expandable segment, one run of pages.
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

/// All segments of a device, by address.
using Layout = std::vector<SegmentState>;

/// FormatError unless segments and blocks follow each other without overlap, blocks fill their
/// segments, and no two free ones are neighbours.
void check_layout(const Layout& layout);

/// Gives `segments` (by address) these active blocks, and free ones between them. FormatError for a
/// block that is outside all segments or overlaps another.
void place_blocks(Layout& segments, std::vector<BlockState> active);

constexpr bool is_segment_action(TraceAction action) {
  return action >= TraceAction::SegmentAlloc && action <= TraceAction::SegmentUnmap;
}
constexpr bool adds_memory(TraceAction action) {
  return action == TraceAction::SegmentAlloc || action == TraceAction::SegmentMap;
}
/// As torch spells it, such as `free_requested`.
std::string_view to_string(TraceAction action);

struct TraceEvent {
  TraceAction action{};
  int64_t address = 0;
  int64_t size_bytes = 0;  ///< as requested, for blocks; whole, for segments
  int64_t stream = 0;
  PoolId pool;  ///< the default pool where the recording does not say

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

/// What a snapshot holds of one device: the last events, and the segments after them.
struct DeviceTrace {
  std::vector<TraceEvent> events;
  Layout final_layout;
};

}  // namespace tidegauge
