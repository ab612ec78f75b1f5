// SPDX-License-Identifier: BSD-3-Clause
// Expandable segments of the CachingAllocator: one range of addresses per pool and stream, to which
// memory is mapped page by page.
//
//   [used][free      |used][free][ unmapped ][free][ unmapped                ...]
//          page       page                    page
#include <algorithm>

#include "allocator/caching_allocator.h"
#include "allocator/rounding.h"

namespace tidegauge {
namespace {

// If the device's memory is unknown, ranges are as large as for a device of this size.
constexpr int64_t kAssumedTotalBytes = int64_t{1} << 40;

bool is_free(const Block* block) { return block != nullptr && block->use == BlockUse::Free; }

}  // namespace

int64_t CachingAllocator::range_bytes(int64_t page_bytes) const {
  const int64_t total_bytes =
      options_.total_bytes == kNoLimit ? kAssumedTotalBytes : options_.total_bytes;
  return round_up(total_bytes + total_bytes / 8, page_bytes);
}

/// Where a range at `address` ends at the latest: where another segment begins, or will begin.
int64_t CachingAllocator::range_end(int64_t address, const Shelf& shelf) const {
  const auto above = segments_.upper_bound(address);
  const int64_t end = above != segments_.end() ? above->first : kAddressEnd;
  if (!options_.range_end) return end;
  const PoolId pool = shelf.pool->owner != nullptr ? shelf.pool->owner->id : PoolId{};
  return std::min(end, options_.range_end(address, shelf.stream, pool, shelf.pool->is_small));
}

/// Maps the pages that are missing for the request. Pages stay mapped even if later ones fail.
Block* CachingAllocator::grow_expandable(const Request& request) {
  Block* block = find_room(request);
  if (block == nullptr) return nullptr;
  if (!block->is_mapped) {
    block = map(block, std::min(block->size_bytes, request.size_bytes));
  }
  while (block != nullptr && block->size_bytes < request.size_bytes) {
    const int64_t missing_bytes = request.size_bytes - block->size_bytes;
    block = map(block->next, std::min(missing_bytes, block->next->size_bytes));
  }
  if (block != nullptr) take_off_shelf(block);
  return block;
}

/// The lowest run of free and unmapped blocks with room for the request; makes a new range if there
/// is none. Null if there are no addresses for one.
Block* CachingAllocator::find_room(const Request& request) {
  Shelf& shelf = *request.shelf;
  for (Block* unmapped : shelf.unmapped) {
    Block* first = is_free(unmapped->prev) ? unmapped->prev : unmapped;
    int64_t room_bytes = 0;
    for (const Block* block = first; room_bytes < request.size_bytes && is_free(block);
         block = block->next) {
      room_bytes += block->size_bytes;
    }
    if (room_bytes >= request.size_bytes) return first;
  }
  const int64_t page_bytes =
      request.is_small() ? kSmallSegmentBytes : options_.config.large_segment_bytes;
  const int64_t least_bytes = round_up(request.size_bytes, page_bytes);
  const int64_t size_bytes = std::max(range_bytes(page_bytes), least_bytes);
  const int64_t address = place(size_bytes, /*is_expandable=*/true);
  if (address == kNoAddress) return nullptr;
  const int64_t end = std::min(address + size_bytes, range_end(address, shelf));
  const int64_t kept_bytes = std::max((end - address) / page_bytes * page_bytes, least_bytes);
  Segment* segment = add_segment(address, kept_bytes, page_bytes, shelf);
  put_on_shelf(segment->head);
  return segment->head;
}

/// Maps whole pages from the start of the unmapped `block`. Returns the free block, on its shelf,
/// that then covers them, or nullptr if the device has too little memory.
Block* CachingAllocator::map(Block* block, int64_t size_bytes) {
  const Segment& segment = *block->segment;
  const int64_t mapped_bytes = round_up(size_bytes, segment.page_bytes);
  if (reserved_bytes() + mapped_bytes > limits_.device_bytes) return nullptr;

  take_off_shelf(block);
  const int64_t address = block->address;
  if (mapped_bytes < block->size_bytes) put_on_shelf(cut(block, mapped_bytes));
  block->is_mapped = true;
  block = merge_with_neighbours(block).block;
  put_on_shelf(block);

  ++stats_.num_device_alloc;
  count_reserved(segment, mapped_bytes);
  notify(TraceAction::SegmentMap, segment, address, mapped_bytes);
  return block;
}

/// Unmaps the whole pages inside the free `block`.
void CachingAllocator::unmap(Block* block) {
  Segment& segment = *block->segment;
  const int64_t start = round_up(block->address - segment.address, segment.page_bytes);
  const int64_t end = (block->address + block->size_bytes - segment.address) / segment.page_bytes *
                      segment.page_bytes;
  if (start >= end) return;
  const int64_t address = segment.address + start;
  const int64_t unmapped_bytes = end - start;

  take_off_shelf(block);
  if (address > block->address) {
    Block* before = block;
    block = cut(block, address - block->address);
    put_on_shelf(before);
  }
  if (unmapped_bytes < block->size_bytes) put_on_shelf(cut(block, unmapped_bytes));
  block->is_mapped = false;
  block = merge_with_neighbours(block).block;
  put_on_shelf(block);

  ++stats_.num_device_free;
  count_reserved(segment, -unmapped_bytes);
  notify(TraceAction::SegmentUnmap, segment, address, unmapped_bytes);
  if (!block->is_split()) {
    take_off_shelf(block);
    arena_.recycle(block);
    segments_.erase(segment.address);
  }
}

}  // namespace tidegauge
