// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/trace_rewind.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "allocator/rounding.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

class Rewind {
 public:
  Rewind(const DeviceTrace& trace, const AllocConfig& config)
      : config_(config), events_(trace.events) {
    check_layout(trace.final_layout);
    for (const SegmentState& segment : trace.final_layout) {
      for (const BlockState& block : segment.blocks) {
        if (block.use != BlockUse::Free) active_[block.address] = block;
      }
      segments_[segment.address] = segment;
      segments_[segment.address].blocks.clear();
    }
  }

  RewoundTrace run() {
    for (index_ = events_.size(); index_-- > 0;) undo(events_[index_]);
    find_sizes();
    RewoundTrace rewound;
    for (auto& [address, segment] : segments_) rewound.initial_layout.push_back(std::move(segment));
    std::vector<BlockState> active;
    active.reserve(active_.size());
    for (const auto& [address, block] : active_) active.push_back(block);
    place_blocks(rewound.initial_layout, std::move(active));
    rewound.events = std::move(events_);
    return rewound;
  }

 private:
  using Segments = std::map<int64_t, SegmentState>;

  [[noreturn]] void fail(const std::string& what) const {
    const TraceEvent& event = events_[index_];
    throw FormatError("event " + std::to_string(index_) + " (" +
                      std::string(to_string(event.action)) + " of " +
                      std::to_string(event.size_bytes) + " bytes at address " +
                      std::to_string(event.address) + ") contradicts later events: " + what);
  }

  void undo(TraceEvent& event) {
    if (event.size_bytes < 0 || event.address < 0 || event.size_bytes > kMaxRequestBytes ||
        event.address > kAddressEnd - event.size_bytes) {
      fail("invalid address or size");
    }
    switch (event.action) {
      case TraceAction::Alloc:
        event.pool = segment_at(event.address).pool;
        if (active_.erase(event.address) == 0) fail("the block does not exist afterwards");
        break;
      case TraceAction::FreeRequested: {
        const auto block = active_.find(event.address);
        if (block == active_.end()) fail("the block does not exist");
        block->second.use = BlockUse::Allocated;
        break;
      }
      case TraceAction::FreeCompleted: {
        segment_at(event.address);
        const BlockState block{event.address, 0, event.size_bytes, BlockUse::PendingFree};
        if (!active_.emplace(event.address, block).second)
          fail("the block still exists afterwards");
        break;
      }
      case TraceAction::SegmentAlloc: {
        const auto segment = segments_.find(event.address);
        if (segment == segments_.end() || segment->second.size_bytes != event.size_bytes) {
          fail("the segment does not exist afterwards");
        }
        check_is_free(event);
        segments_.erase(segment);
        break;
      }
      case TraceAction::SegmentFree:
        add_memory(event, /*is_expandable=*/false);
        break;
      case TraceAction::SegmentUnmap:
        add_memory(event, /*is_expandable=*/true);
        break;
      case TraceAction::SegmentMap:
        remove_pages(event);
        break;
      case TraceAction::OutOfMemory:
      case TraceAction::Snapshot:
        break;
    }
  }

  const SegmentState& segment_at(int64_t address) {
    const auto above = segments_.upper_bound(address);
    if (above == segments_.begin()) fail("there is no segment at this address");
    const SegmentState& segment = std::prev(above)->second;
    if (address >= segment.address + segment.size_bytes)
      fail("there is no segment at this address");
    return segment;
  }

  void check_is_free(const TraceEvent& segment) const {
    const auto block = active_.lower_bound(segment.address);
    if (block != active_.end() && block->first < segment.address + segment.size_bytes) {
      fail("another block exists at this address before");
    }
  }

  void add_memory(const TraceEvent& event, bool is_expandable) {
    const int64_t end = event.address + event.size_bytes;
    const auto above = segments_.lower_bound(event.address);
    const auto below = above == segments_.begin() ? segments_.end() : std::prev(above);
    if (event.size_bytes == 0 || (above != segments_.end() && above->first < end) ||
        (below != segments_.end() &&
         below->second.address + below->second.size_bytes > event.address)) {
      fail("another segment exists at this address afterwards");
    }
    const auto joins = [&](Segments::iterator segment) {
      return is_expandable && segment != segments_.end() && segment->second.is_expandable &&
             segment->second.stream == event.stream;
    };
    const bool joins_below =
        joins(below) && below->second.address + below->second.size_bytes == event.address;
    const bool joins_above = joins(above) && above->first == end;
    SegmentState added{event.address,
                       event.size_bytes,
                       event.stream,
                       event.pool,
                       is_small_segment(event.size_bytes, is_expandable, config_),
                       is_expandable,
                       {}};
    if (joins_above) {
      added.is_small = above->second.is_small;
      added.pool = above->second.pool;
      added.size_bytes += above->second.size_bytes;
      segments_.erase(above);
    }
    if (joins_below) {
      below->second.size_bytes += added.size_bytes;
    } else {
      segments_[added.address] = added;
    }
  }

  void remove_pages(const TraceEvent& event) {
    SegmentState segment = segment_at(event.address);
    const int64_t end = segment.address + segment.size_bytes;
    const int64_t removed_end = event.address + event.size_bytes;
    if (!segment.is_expandable || event.size_bytes == 0 || removed_end > end) {
      fail("the pages do not exist afterwards");
    }
    check_is_free(event);
    segments_.erase(segment.address);
    const int64_t start = segment.address;
    if (start < event.address) {
      segment.size_bytes = event.address - start;
      segments_[start] = segment;
    }
    if (removed_end < end) {
      segment.address = removed_end;
      segment.size_bytes = end - removed_end;
      segments_[removed_end] = segment;
    }
  }

  /// Finds the sizes of blocks that are freed in the trace; see the header.
  void find_sizes() {
    struct Open {
      int64_t size_bytes;
      int64_t limit;  // the next active block
    };
    std::map<int64_t, Open> open;
    index_ = 0;
    for (auto next = active_.begin(); next != active_.end();) {
      BlockState& block = (next++)->second;
      if (block.size_bytes != 0) continue;
      const SegmentState& segment = segment_at(block.address);
      block.size_bytes = round_request(block.requested_bytes, config_);
      if (segment.is_small || segment.is_expandable || config_.expandable_segments) continue;
      int64_t limit = segment.address + segment.size_bytes;
      if (next != active_.end()) limit = std::min(limit, next->first);
      if (limit - block.address - block.size_bytes <= kSmallLimitBytes) {
        block.size_bytes = limit - block.address;
      } else {
        open[block.address] = {block.size_bytes, limit};
      }
    }
    for (const TraceEvent& event : events_) {
      if (event.action == TraceAction::FreeCompleted) {
        open.erase(event.address);
      } else if (event.action == TraceAction::Alloc) {
        const auto above = open.upper_bound(event.address);
        if (above == open.begin()) continue;
        const auto below = std::prev(above);
        if (event.address >= below->second.limit) continue;
        const int64_t slack_bytes = event.address - below->first - below->second.size_bytes;
        if (slack_bytes >= 0 && slack_bytes <= kSmallLimitBytes) {
          active_[below->first].size_bytes += slack_bytes;
        }
        open.erase(below);
      }
    }
  }

  const AllocConfig& config_;
  std::vector<TraceEvent> events_;
  Segments segments_;
  std::map<int64_t, BlockState> active_;
  size_t index_ = 0;
};

}  // namespace

RewoundTrace rewind_trace(const DeviceTrace& trace, const AllocConfig& config) {
  return Rewind(trace, config).run();
}

}  // namespace tidegauge
