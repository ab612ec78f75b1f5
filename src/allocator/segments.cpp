// SPDX-License-Identifier: BSD-3-Clause
// How the CachingAllocator gets memory from the driver and returns it.
#include <algorithm>
#include <string>
#include <utility>

#include "allocator/caching_allocator.h"
#include "allocator/rounding.h"
#include "tidegauge/errors.h"

namespace tidegauge {

/// A block for the request that is on no shelf, or null.
Block* CachingAllocator::new_segment(Request& request) {
  const int64_t after_bytes = reserved_bytes() + request.segment_bytes;
  if (after_bytes > limits_.reject_bytes) {
    ++stats_.num_oom_rejections;
    request.is_rejected = true;
    return nullptr;
  }
  // torch compares the size of a whole segment, although an expandable one might need less.
  if (after_bytes > limits_.allowed_bytes) return nullptr;
  if (options_.config.expandable_segments) return grow_expandable(request);
  return after_bytes > limits_.device_bytes ? nullptr : new_plain_segment(request);
}

Block* CachingAllocator::new_plain_segment(const Request& request) {
  const int64_t size_bytes = request.segment_bytes;
  const int64_t address = place(size_bytes, /*is_expandable=*/false);
  if (address == kNoAddress) return nullptr;
  Segment* segment = add_segment(address, size_bytes, /*page_bytes=*/0, *request.shelf);
  stats_.segment.increase(request.is_small(), 1);
  if (size_bytes >= options_.config.max_split_bytes) stats_.oversize_segments.increase(1);
  ++stats_.num_device_alloc;
  count_reserved(*segment, size_bytes);
  notify(TraceAction::SegmentAlloc, *segment, address, size_bytes);
  return segment->head;
}

/// kNoAddress if the addresses are used up.
int64_t CachingAllocator::place(int64_t size_bytes, bool is_expandable) {
  int64_t address = options_.place ? options_.place(size_bytes, is_expandable) : kNoAddress;
  if (address == kNoAddress) address = next_address_;
  if (address > kAddressEnd - size_bytes) return kNoAddress;
  next_address_ = std::max(next_address_, round_up(address + size_bytes, kLargeRoundingBytes));
  return address;
}

/// Adds a segment of one block that is on no shelf; it is mapped if the segment is plain.
Segment* CachingAllocator::add_segment(int64_t address, int64_t size_bytes, int64_t page_bytes,
                                       Shelf& shelf) {
  const auto above = segments_.lower_bound(address);
  const bool hits_above = above != segments_.end() && above->first < address + size_bytes;
  const bool hits_below = above != segments_.begin() &&
                          std::prev(above)->first + std::prev(above)->second.size_bytes > address;
  if (hits_above || hits_below) {
    throw UsageError("a segment of " + std::to_string(size_bytes) + " bytes at address " +
                     std::to_string(address) + " overlaps another segment");
  }
  Segment& segment = segments_[address];
  Block* block = arena_.make();
  segment = Segment{address, size_bytes, page_bytes, &shelf, block, ++last_counter_};
  block->address = address;
  block->size_bytes = size_bytes;
  block->segment = &segment;
  const bool has_counter =
      options_.tie == TieRule::SegmentCounter ||
      (options_.tie == TieRule::PrivateCounter && shelf.pool->owner != nullptr);
  block->tie = has_counter ? segment.counter : 0;
  block->is_mapped = page_bytes == 0;
  return &segment;
}

void CachingAllocator::count_reserved(const Segment& segment, int64_t change_bytes) {
  const BlockPool& pool = *segment.shelf->pool;
  stats_.reserved_bytes.change(pool.is_small, change_bytes);
  if (pool.owner != nullptr) pool.owner->reserved_bytes.change(pool.is_small, change_bytes);
}

void CachingAllocator::notify(TraceAction action, const Segment& segment, int64_t address,
                              int64_t size_bytes) {
  if (!options_.on_segment_event) return;
  const PrivatePool* owner = segment.shelf->pool->owner;
  options_.on_segment_event(TraceEvent{action, address, size_bytes, segment.shelf->stream,
                                       owner != nullptr ? owner->id : PoolId{}});
}

/// cudaFree of a plain segment that consists of the free `block`.
void CachingAllocator::release_segment(Block* block) {
  const Segment& segment = *block->segment;
  ++stats_.num_device_free;
  stats_.segment.decrease(segment.shelf->pool->is_small, 1);
  if (segment.size_bytes >= options_.config.max_split_bytes) stats_.oversize_segments.decrease(1);
  count_reserved(segment, -segment.size_bytes);
  take_off_shelf(block);
  notify(TraceAction::SegmentFree, segment, segment.address, segment.size_bytes);
  arena_.recycle(block);
  segments_.erase(segment.address);
}

/// Releases only as many oversize blocks as the request needs: the one that fits, or several
/// smaller ones from the largest down. Leaves expandable segments to release_cached().
bool CachingAllocator::release_oversize(const Request& request) {
  const int64_t limit_bytes = options_.config.max_split_bytes;
  if (limit_bytes == kNoLimit) return false;
  const auto is_releasable = [](const Block& block) {
    return !block.is_split() && !block.segment->is_expandable();
  };
  FreeBlocks& free = request.shelf->free;
  const int64_t wanted_bytes = std::max(request.size_bytes, limit_bytes);
  auto next = free.lower_bound(FitKey{wanted_bytes});
  if (next != free.end() && is_releasable(**next)) {
    release_segment(*next);
    return true;
  }
  int64_t released_bytes = 0;
  while (next != free.begin() && released_bytes < wanted_bytes) {
    Block* block = *std::prev(next);
    if (block->size_bytes < limit_bytes) break;
    if (is_releasable(*block)) {
      released_bytes += block->size_bytes;
      release_segment(block);
    } else {
      --next;
    }
  }
  return released_bytes >= wanted_bytes;
}

void CachingAllocator::release_cached() {
  poll_waits(/*is_sync=*/true);
  release_shelf_segments(large_);
  release_shelf_segments(small_);
  for (auto next = private_pools_.begin(); next != private_pools_.end();) {
    const auto pool = next++;
    if (pool->second.use_count > 0) continue;
    release_shelf_segments(pool->second.small);
    release_shelf_segments(pool->second.large);
    if (pool->second.reserved_bytes.all().current > 0) continue;
    forget_ranges(pool->second.small);
    forget_ranges(pool->second.large);
    private_pools_.erase(pool);
  }
}

/// Forgets the ranges to which nothing could be mapped when they were made.
void CachingAllocator::forget_ranges(BlockPool& pool) {
  for (auto& [stream, shelf] : pool.shelves) {
    for (Block* range : std::exchange(shelf.unmapped, {})) {
      segments_.erase(range->address);
      arena_.recycle(range);
    }
  }
}

void CachingAllocator::release_shelf_segments(BlockPool& pool) {
  std::vector<Block*> to_unmap;
  for (auto& [stream, shelf] : pool.shelves) {
    for (auto next = shelf.free.begin(); next != shelf.free.end();) {
      Block* block = *next++;
      if (block->segment->is_expandable()) {
        to_unmap.push_back(block);
      } else if (!block->is_split()) {
        release_segment(block);
      }
    }
  }
  for (Block* block : to_unmap) unmap(block);
}

/// Releases cached segments of the large pool that are older than the average, until the reserved
/// bytes are below the threshold.
void CachingAllocator::collect_garbage() {
  const int64_t target_bytes = reserved_bytes() - limits_.garbage_bytes;
  if (target_bytes <= 0) return;
  const auto age = [this](const Block& block) {
    return static_cast<int64_t>(large_.searches - block.free_since);
  };
  int64_t total_age = 0;
  int64_t count = 0;
  for (const auto& [stream, shelf] : large_.shelves) {
    for (const Block* block : shelf.free) {
      if (block->is_split()) continue;
      total_age += age(*block);
      ++count;
    }
  }
  int64_t reclaimed_bytes = 0;
  for (bool has_freed = true; has_freed && reclaimed_bytes < target_bytes && count > 0;) {
    const double threshold_age = static_cast<double>(total_age) / static_cast<double>(count);
    has_freed = false;
    for (auto& [stream, shelf] : large_.shelves) {
      for (auto next = shelf.free.begin(); next != shelf.free.end();) {
        Block* block = *next++;
        const int64_t block_age = age(*block);
        if (block->is_split() || block->segment->is_expandable() ||
            static_cast<double>(block_age) < threshold_age) {
          continue;
        }
        has_freed = true;
        reclaimed_bytes += block->size_bytes;
        total_age -= block_age;
        --count;
        release_segment(block);
      }
    }
  }
}

}  // namespace tidegauge
