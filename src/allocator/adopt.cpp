// SPDX-License-Identifier: BSD-3-Clause
// How the CachingAllocator starts from a recorded layout and returns its own.
#include <algorithm>

#include "allocator/caching_allocator.h"
#include "allocator/rounding.h"
#include "tidegauge/errors.h"

namespace tidegauge {
Shelf& CachingAllocator::shelf_of(const SegmentState& state) {
  if (state.pool.is_default()) return (state.is_small ? small_ : large_).shelf(state.stream);
  if (!private_pools_.contains(state.pool)) create_pool(state.pool);
  PrivatePool& pool = private_pool(state.pool);
  return (state.is_small ? pool.small : pool.large).shelf(state.stream);
}

std::vector<Block*> CachingAllocator::adopt(const Layout& layout) {
  if (!segments_.empty()) throw UsageError("adopt() requires an allocator without segments");
  check_layout(layout);

  std::vector<Block*> active;
  for (size_t i = 0; i < layout.size();) {
    const SegmentState& first = layout[i];
    Shelf& shelf = shelf_of(first);
    if (!first.is_expandable) {
      Segment* segment = add_segment(first.address, first.size_bytes, /*page_bytes=*/0, shelf);
      stats_.segment.increase(first.is_small, 1);
      if (first.size_bytes >= options_.config.max_split_bytes) {
        stats_.oversize_segments.increase(1);
      }
      adopt_blocks(segment->head, first, active);
      ++i;
      continue;
    }
    // A range contains only its own pieces, so they are consecutive. Its begin and end were not
    // recorded: we let it begin at its first piece and end at the usual length of a range, or where
    // the next segment begins, now or later.
    const int64_t page_bytes =
        first.is_small ? kSmallSegmentBytes : options_.config.large_segment_bytes;
    int64_t end = first.address + std::min(range_bytes(page_bytes), kAddressEnd - first.address);
    end = std::min(end, range_end(first.address, shelf));
    size_t last = i;
    while (last + 1 < layout.size() && layout[last + 1].is_expandable &&
           layout[last + 1].address < end && &shelf_of(layout[last + 1]) == &shelf) {
      ++last;
    }
    if (last + 1 < layout.size()) end = std::min(end, layout[last + 1].address);
    const int64_t least_bytes = layout[last].address + layout[last].size_bytes - first.address;
    const int64_t size_bytes =
        std::max(least_bytes, (end - first.address) / page_bytes * page_bytes);
    Block* rest = add_segment(first.address, size_bytes, page_bytes, shelf)->head;
    for (; i <= last; ++i) {
      const int64_t gap_bytes = layout[i].address - rest->address;
      if (gap_bytes > 0) {
        Block* gap = rest;
        rest = cut(gap, gap_bytes);
        put_on_shelf(gap);
      }
      rest = adopt_blocks(rest, layout[i], active);
    }
    if (rest != nullptr) put_on_shelf(rest);
  }
  for (const auto& [address, segment] : segments_) {
    next_address_ = std::max(next_address_, round_up(address + segment.size_bytes, kMiB * 2));
  }
  return active;
}

/// Cuts the blocks of `state` from the start of `block`. Returns the rest, or null.
Block* CachingAllocator::adopt_blocks(Block* block, const SegmentState& state,
                                      std::vector<Block*>& active) {
  const bool is_split = state.blocks.size() > 1;
  for (const BlockState& recorded : state.blocks) {
    Block* rest =
        recorded.size_bytes < block->size_bytes ? cut(block, recorded.size_bytes) : nullptr;
    block->is_mapped = true;
    adopt_block(block, recorded, active);
    if (recorded.use == BlockUse::Free && is_split && !state.is_expandable) {
      stats_.inactive_split.increase(state.is_small, 1);
      stats_.inactive_split_bytes.increase(state.is_small, recorded.size_bytes);
    }
    block = rest;
  }
  return block;
}

void CachingAllocator::adopt_block(Block* block, const BlockState& state,
                                   std::vector<Block*>& active) {
  const bool is_small = block->segment->shelf->pool->is_small;
  count_reserved(*block->segment, state.size_bytes);
  block->use = state.use;
  if (state.use == BlockUse::Free) {
    put_on_shelf(block);
    return;
  }
  active.push_back(block);
  block->requested_bytes = state.requested_bytes;
  stats_.active.increase(is_small, 1);
  stats_.active_bytes.increase(is_small, state.size_bytes);
  stats_.requested_bytes.increase(is_small, state.requested_bytes);
  if (state.use == BlockUse::Allocated) {
    stats_.allocation.increase(is_small, 1);
    stats_.allocated_bytes.increase(is_small, state.size_bytes);
    if (state.size_bytes >= options_.config.max_split_bytes) {
      stats_.oversize_allocations.increase(1);
    }
    return;
  }
  // The stream that it waits for was not recorded; any other stream will do.
  block->has_other_streams = true;
  waits_.add_use(block, block->segment->shelf->stream + 1, /*in_capture=*/false);
  waits_.start(block, /*in_capture=*/false);
}

Layout CachingAllocator::layout() const {
  Layout layout;
  for (const auto& [address, segment] : segments_) {
    const BlockPool& pool = *segment.shelf->pool;
    bool is_open = false;
    for (const Block* block = segment.head; block != nullptr; block = block->next) {
      if (!block->is_mapped) {
        is_open = false;
        continue;
      }
      if (!is_open) {
        layout.push_back({.address = block->address,
                          .size_bytes = 0,
                          .stream = segment.shelf->stream,
                          .pool = pool.owner != nullptr ? pool.owner->id : PoolId{},
                          .is_small = pool.is_small,
                          .is_expandable = segment.is_expandable(),
                          .blocks = {}});
        is_open = true;
      }
      layout.back().size_bytes += block->size_bytes;
      layout.back().blocks.push_back(
          {block->address, block->size_bytes, block->requested_bytes, block->use});
    }
  }
  return layout;
}

}  // namespace tidegauge
