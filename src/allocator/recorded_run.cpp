// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/recorded_run.h"

#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "allocator/rounding.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

/// Keeps all memory as one list of blocks by address, and the segments beside it.
class Follower {
 public:
  Follower(const RewoundTrace& trace, const AllocConfig& config) : trace_(trace), config_(config) {
    for (const SegmentState& segment : trace.initial_layout) {
      reserved_bytes_ += segment.size_bytes;
      segments_[segment.address] = segment;
      for (const BlockState& block : segment.blocks) {
        blocks_[block.address] = block;
        if (block.use != BlockUse::Free) count_active(block, +1);
      }
    }
    observe();
  }

  RecordedRun run() {
    for (; index_ < trace_.events.size(); ++index_) apply(trace_.events[index_]);
    RecordedRun run;
    run.final_layout = layout();
    run.figures = meter_.finish(static_cast<int64_t>(run.final_layout.size()));
    return run;
  }

 private:
  using Blocks = std::map<int64_t, BlockState>;

  [[noreturn]] void fail(const std::string& what) const {
    const TraceEvent& event = trace_.events[index_];
    throw FormatError("event " + std::to_string(index_) + " (" +
                      std::string(to_string(event.action)) + " of " +
                      std::to_string(event.size_bytes) + " bytes at address " +
                      std::to_string(event.address) + ") contradicts earlier events: " + what);
  }

  void observe() { meter_.observe(reserved_bytes_, active_bytes_, requested_bytes_); }

  void count_active(const BlockState& block, int sign) {
    active_bytes_ += sign * block.size_bytes;
    requested_bytes_ += sign * block.requested_bytes;
  }

  void apply(const TraceEvent& event) {
    switch (event.action) {
      case TraceAction::Alloc:
        alloc(event);
        break;
      case TraceAction::FreeRequested:
        find(event.address, BlockUse::Allocated)->second.use = BlockUse::PendingFree;
        break;
      case TraceAction::FreeCompleted:
        free(find(event.address, BlockUse::PendingFree));
        break;
      case TraceAction::SegmentAlloc:
      case TraceAction::SegmentMap:
        add_memory(event);
        break;
      case TraceAction::SegmentFree:
      case TraceAction::SegmentUnmap:
        remove_memory(event);
        break;
      case TraceAction::OutOfMemory:
        meter_.observe_out_of_memory();
        break;
      case TraceAction::Snapshot:
        break;
    }
    if (is_segment_action(event.action)) {
      meter_.observe_segment(reserved_bytes_);
    } else {
      observe();
    }
  }

  Blocks::iterator find(int64_t address, BlockUse use) {
    const auto block = blocks_.find(address);
    if (block == blocks_.end() || block->second.use != use) fail("there is no such block");
    return block;
  }

  void alloc(const TraceEvent& event) {
    BlockState& block = find(event.address, BlockUse::Free)->second;
    const int64_t size_bytes = round_request(event.size_bytes, config_);
    const int64_t rest_bytes = block.size_bytes - size_bytes;
    if (rest_bytes < 0) fail("the free block at this address is too small");
    const SegmentState& segment = std::prev(segments_.upper_bound(event.address))->second;
    const bool splits = segment.is_small || config_.expandable_segments
                            ? rest_bytes >= kDeviceBlockBytes
                            : size_bytes < config_.max_split_bytes && rest_bytes > kSmallLimitBytes;
    if (splits) {
      block.size_bytes = size_bytes;
      const int64_t rest = event.address + size_bytes;
      blocks_[rest] = {rest, rest_bytes, 0, BlockUse::Free};
    }
    block.use = BlockUse::Allocated;
    block.requested_bytes = event.size_bytes;
    count_active(block, +1);
  }

  void free(Blocks::iterator block) {
    count_active(block->second, -1);
    block->second.use = BlockUse::Free;
    block->second.requested_bytes = 0;
    merge_with_next(block);
    if (block != blocks_.begin()) merge_with_next(std::prev(block));
  }

  void merge_with_next(Blocks::iterator block) {
    const auto next = std::next(block);
    if (next == blocks_.end() || block->second.use != BlockUse::Free ||
        next->second.use != BlockUse::Free || segments_.contains(next->first) ||
        block->first + block->second.size_bytes != next->first) {
      return;
    }
    block->second.size_bytes += next->second.size_bytes;
    blocks_.erase(next);
  }

  void add_memory(const TraceEvent& event) {
    const bool is_expandable = event.action == TraceAction::SegmentMap;
    const int64_t end = event.address + event.size_bytes;
    const auto above = blocks_.lower_bound(event.address);
    const auto below = above == blocks_.begin() ? blocks_.end() : std::prev(above);
    if (event.size_bytes <= 0 || (above != blocks_.end() && above->first < end) ||
        (below != blocks_.end() && below->first + below->second.size_bytes > event.address)) {
      fail("other memory exists at this address");
    }
    // Adjacent pages of the same range form one segment.
    const auto joins = [&](std::map<int64_t, SegmentState>::iterator segment) {
      return is_expandable && segment->second.is_expandable &&
             segment->second.stream == event.stream;
    };
    const auto after = segments_.find(end);
    const auto above_segment = segments_.lower_bound(event.address);
    const auto before =
        above_segment == segments_.begin() ? segments_.end() : std::prev(above_segment);
    const bool joins_before = before != segments_.end() && joins(before) &&
                              before->first + before->second.size_bytes == event.address;
    SegmentState added{event.address,
                       event.size_bytes,
                       event.stream,
                       event.pool,
                       is_small_segment(event.size_bytes, is_expandable, config_),
                       is_expandable,
                       {}};
    if (after != segments_.end() && joins(after)) {
      added.size_bytes += after->second.size_bytes;
      added.is_small = after->second.is_small;
      segments_.erase(after);
    }
    if (joins_before) {
      before->second.size_bytes += added.size_bytes;
    } else {
      segments_[event.address] = added;
    }
    const auto block =
        blocks_.emplace(event.address, BlockState{event.address, event.size_bytes, 0}).first;
    merge_with_next(block);
    if (block != blocks_.begin()) merge_with_next(std::prev(block));
    reserved_bytes_ += event.size_bytes;
  }

  void remove_memory(const TraceEvent& event) {
    const int64_t end = event.address + event.size_bytes;
    auto block = blocks_.upper_bound(event.address);
    if (block == blocks_.begin()) fail("there is no memory at this address");
    --block;
    const int64_t block_start = block->first;
    const int64_t block_end = block_start + block->second.size_bytes;
    const auto segment = std::prev(segments_.upper_bound(event.address));
    const int64_t segment_start = segment->first;
    const int64_t segment_end = segment_start + segment->second.size_bytes;
    const bool is_whole = event.action == TraceAction::SegmentUnmap
                              ? segment->second.is_expandable
                              : segment_start == event.address && segment_end == end;
    if (event.size_bytes <= 0 || block->second.use != BlockUse::Free || end > block_end ||
        !is_whole) {
      fail("the memory at this address is not free");
    }
    const SegmentState cut = segment->second;
    segments_.erase(segment);
    const auto keep_segment = [&](int64_t from, int64_t to) {
      if (from >= to) return;
      segments_[from] = cut;
      segments_[from].address = from;
      segments_[from].size_bytes = to - from;
    };
    keep_segment(segment_start, event.address);
    keep_segment(end, segment_end);
    blocks_.erase(block);
    const auto keep_block = [&](int64_t from, int64_t to) {
      if (from < to) blocks_[from] = {from, to - from, 0, BlockUse::Free};
    };
    keep_block(block_start, event.address);
    keep_block(end, block_end);
    reserved_bytes_ -= event.size_bytes;
  }

  Layout layout() const {
    Layout layout;
    for (const auto& [address, segment] : segments_) {
      layout.push_back(segment);
      layout.back().blocks.clear();
      const auto end = blocks_.lower_bound(address + segment.size_bytes);
      for (auto block = blocks_.find(address); block != end; ++block) {
        layout.back().blocks.push_back(block->second);
      }
    }
    return layout;
  }

  const RewoundTrace& trace_;
  const AllocConfig& config_;
  size_t index_ = 0;
  std::map<int64_t, SegmentState> segments_;
  Blocks blocks_;
  int64_t reserved_bytes_ = 0;
  int64_t active_bytes_ = 0;
  int64_t requested_bytes_ = 0;
  RunMeter meter_;
};

}  // namespace

RecordedRun follow_recording(const RewoundTrace& trace, const AllocConfig& config) {
  return Follower(trace, config).run();
}

}  // namespace tidegauge
