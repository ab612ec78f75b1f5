// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/caching_allocator.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "allocator/rounding.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

// The first segment's address must not look like a null pointer.
constexpr int64_t kFirstAddress = int64_t{1} << 30;

/// The size to which a free block of an expandable segment could grow in place.
int64_t reach_bytes(const Block& block) {
  const bool can_grow = block.next != nullptr && !block.next->is_mapped;
  return block.size_bytes + (can_grow ? block.next->size_bytes : 0);
}

}  // namespace

CachingAllocator::CachingAllocator(AllocatorOptions options)
    : options_(std::move(options)), waits_(options_.deferred), next_address_(kFirstAddress) {
  compute_limits();
}

void CachingAllocator::set_config(const AllocConfig& config) {
  options_.config = config;
  compute_limits();
}

void CachingAllocator::compute_limits() {
  const AllocConfig& config = options_.config;
  const double fraction = options_.memory_fraction.value_or(config.per_process_memory_fraction);
  limits_ = Limits{};
  if (options_.total_bytes == kNoLimit) {
    if (fraction < 1) {
      throw UsageError("a memory fraction of " + std::to_string(fraction) +
                       " requires the memory of the device: set total_bytes");
    }
    return;
  }
  if (options_.total_bytes < 0 || options_.total_bytes > kMaxDeviceBytes) {
    throw UsageError("invalid device memory of " + std::to_string(options_.total_bytes) +
                     " bytes (expected at most 2^60)");
  }
  const auto total = static_cast<double>(options_.total_bytes);
  limits_.device_bytes = options_.total_bytes - options_.outside_bytes;
  if (fraction < 1) {
    limits_.allowed_bytes = std::llround(fraction * total);
    const double threshold = config.garbage_collection_threshold;
    if (threshold > 0) {
      limits_.garbage_bytes =
          static_cast<int64_t>(threshold * static_cast<double>(limits_.allowed_bytes));
    }
  }
  if (config.throw_on_cudamalloc_oom) {
    limits_.reject_bytes = static_cast<int64_t>(config.per_process_memory_fraction * total);
  }
}

bool CachingAllocator::may_release_for(const TraceEvent& request, int64_t new_bytes) {
  if (!request.pool.is_default() && !has_pool(request.pool)) return false;
  const Request made =
      make_request(std::max<int64_t>(request.size_bytes, 1), request.stream, request.pool);
  if (find_free_block(made) != nullptr) return false;  // it would need no new memory
  return reserved_bytes() > limits_.garbage_bytes ||
         new_bytes > limits_.device_bytes - reserved_bytes() ||
         made.segment_bytes > limits_.allowed_bytes - reserved_bytes();
}

bool CachingAllocator::would_help(const Block& freed, const TraceEvent& request,
                                  int64_t first_released) {
  if (!request.pool.is_default() && !has_pool(request.pool)) return false;
  const Request made =
      make_request(std::max<int64_t>(request.size_bytes, 1), request.stream, request.pool);
  const Segment& segment = *freed.segment;
  if (segment.shelf != made.shelf) return false;
  if (segment.is_expandable() && !options_.config.expandable_segments) return false;
  int64_t size_bytes = freed.size_bytes;  // with the neighbours that it would absorb
  for (const Block* each : {freed.prev, freed.next}) {
    if (each != nullptr && each->use == BlockUse::Free && each->is_mapped) {
      size_bytes += each->size_bytes;
    }
  }
  // An oversize segment would be released before torch waits for all streams.
  if (size_bytes == segment.size_bytes && size_bytes >= options_.config.max_split_bytes &&
      !segment.is_expandable() && segment.address != first_released) {
    return true;
  }
  if (size_bytes < made.size_bytes) return false;
  // A smaller block that would be tried first was refused already.
  const auto first = made.shelf->free.lower_bound(FitKey{made.size_bytes});
  const bool is_first = first == made.shelf->free.end() || size_bytes < (*first)->size_bytes;
  if (!is_first && !segment.is_expandable()) return false;
  return made.size_bytes < options_.config.max_split_bytes
             ? size_bytes < options_.config.max_split_bytes
             : size_bytes - made.size_bytes < options_.config.max_non_split_rounding_bytes;
}

CachingAllocator::Request CachingAllocator::make_request(int64_t requested_bytes, int64_t stream,
                                                         PoolId pool) {
  const int64_t size_bytes = round_request(requested_bytes, options_.config);
  return {.requested_bytes = requested_bytes,
          .size_bytes = size_bytes,
          .segment_bytes = segment_bytes(size_bytes, options_.config),
          .shelf = &pool_for(size_bytes, pool).shelf(stream)};
}

Block* CachingAllocator::malloc(int64_t requested_bytes, int64_t stream, PoolId pool) {
  if (requested_bytes <= 0 || requested_bytes > kMaxRequestBytes) {
    throw UsageError("cannot allocate " + std::to_string(requested_bytes) +
                     " bytes: expected 1 to 2^60 - 1");
  }
  if (captures_ == 0) poll_waits(/*is_sync=*/false);

  Request request = make_request(requested_bytes, stream, pool);
  Block* block = take_free_block(request);
  if (block == nullptr) {
    collect_garbage();
    block = new_segment(request);
  }
  if (block == nullptr && !request.is_rejected) block = borrow_from_pools(request);
  if (block == nullptr && !request.is_rejected && release_oversize(request)) {
    block = new_segment(request);
  }
  if (block == nullptr && !request.is_rejected && captures_ == 0) {
    release_cached();
    ++stats_.num_alloc_retries;
    block = new_segment(request);
  }
  if (block == nullptr) {
    ++stats_.num_ooms;
    return nullptr;
  }
  return hand_out(block, request);
}

BlockPool& CachingAllocator::pool_for(int64_t size_bytes, PoolId pool) {
  const bool is_small = is_small_request(size_bytes);
  if (pool.is_default()) return is_small ? small_ : large_;
  PrivatePool& owner = private_pool(pool);
  return is_small ? owner.small : owner.large;
}

Block* CachingAllocator::find_free_block(const Request& request) const {
  const FreeBlocks& free = request.shelf->free;
  auto found = free.lower_bound(FitKey{request.size_bytes});
  if (found == free.end()) return nullptr;
  if ((*found)->segment->is_expandable()) {
    if (options_.config.expandable_segments) {
      // The end of a segment can still grow, so it is used only if no other block fits.
      for (auto next = std::next(found); (*found)->segment->is_expandable() && next != free.end() &&
                                         reach_bytes(**next) < reach_bytes(**found);
           ++next) {
        found = next;
      }
    } else {
      while (found != free.end() && (*found)->segment->is_expandable()) ++found;
      if (found == free.end()) return nullptr;
    }
  }
  Block* block = *found;
  const AllocConfig& config = options_.config;
  if (request.size_bytes < config.max_split_bytes) {
    if (block->size_bytes >= config.max_split_bytes) return nullptr;
  } else if (block->size_bytes - request.size_bytes >= config.max_non_split_rounding_bytes) {
    return nullptr;
  }
  return block;
}

Block* CachingAllocator::take_free_block(const Request& request) {
  if (limits_.garbage_bytes != kNoLimit) ++request.shelf->pool->searches;
  Block* block = find_free_block(request);
  if (block != nullptr) take_off_shelf(block);
  return block;
}

Block* CachingAllocator::borrow_from_pools(const Request& request) {
  if (request.shelf->pool->owner != nullptr) return nullptr;
  for (auto& [id, pool] : private_pools_) {
    if (!pool.options.use_on_oom) continue;
    Request elsewhere = request;
    elsewhere.shelf = &(request.is_small() ? pool.small : pool.large).shelf(request.shelf->stream);
    if (Block* block = take_free_block(elsewhere)) return block;
  }
  return nullptr;
}

bool CachingAllocator::should_split(const Block& block, const Request& request) const {
  const BlockPool& pool = *block.segment->shelf->pool;
  if (pool.owner != nullptr && pool.owner->options.no_split) return false;
  const int64_t rest_bytes = block.size_bytes - request.size_bytes;
  if (pool.is_small || options_.config.expandable_segments) return rest_bytes >= kDeviceBlockBytes;
  return request.size_bytes < options_.config.max_split_bytes && rest_bytes > kSmallLimitBytes;
}

/// `block` must be free and on no shelf. The request gets its lower end.
Block* CachingAllocator::hand_out(Block* block, const Request& request) {
  const bool is_small = request.is_small();
  const bool is_plain = !block->segment->is_expandable();
  const bool was_split = block->is_split();
  if (should_split(*block, request)) {
    Block* rest = cut(block, request.size_bytes);
    put_on_shelf(rest);
    if (is_plain && was_split) {
      stats_.inactive_split_bytes.decrease(is_small, block->size_bytes);
    } else if (is_plain) {
      stats_.inactive_split_bytes.increase(is_small, rest->size_bytes);
      stats_.inactive_split.increase(is_small, 1);
    }
  } else if (was_split && is_plain) {
    stats_.inactive_split_bytes.decrease(is_small, block->size_bytes);
    stats_.inactive_split.decrease(is_small, 1);
  }
  block->use = BlockUse::Allocated;
  block->requested_bytes = request.requested_bytes;
  stats_.allocation.increase(is_small, 1);
  stats_.allocated_bytes.increase(is_small, block->size_bytes);
  stats_.active.increase(is_small, 1);
  stats_.active_bytes.increase(is_small, block->size_bytes);
  stats_.requested_bytes.increase(is_small, block->requested_bytes);
  if (block->size_bytes >= options_.config.max_split_bytes) {
    stats_.oversize_allocations.increase(1);
  }
  return block;
}

/// Splits `block` at `at_bytes` and returns the upper part.
Block* CachingAllocator::cut(Block* block, int64_t at_bytes) {
  Block* rest = arena_.make();
  rest->address = block->address + at_bytes;
  rest->size_bytes = block->size_bytes - at_bytes;
  rest->segment = block->segment;
  rest->tie = block->tie;
  rest->is_mapped = block->is_mapped;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->prev = rest;
  block->next = rest;
  block->size_bytes = at_bytes;
  return rest;
}

void CachingAllocator::free(Block* block) {
  if (block == nullptr || block->use != BlockUse::Allocated) {
    throw UsageError("only an allocated block can be freed, and only once");
  }
  const bool is_small = block->segment->shelf->pool->is_small;
  stats_.allocation.decrease(is_small, 1);
  stats_.allocated_bytes.decrease(is_small, block->size_bytes);
  if (block->size_bytes >= options_.config.max_split_bytes) {
    stats_.oversize_allocations.decrease(1);
  }
  if (block->has_other_streams) {
    block->use = BlockUse::PendingFree;
    waits_.start(block, captures_ > 0);
  } else {
    finish_free(block);
  }
}

void CachingAllocator::record_stream(Block* block, int64_t stream) {
  if (block == nullptr || block->use != BlockUse::Allocated) {
    throw UsageError("record_stream requires an allocated block");
  }
  if (stream == block->segment->shelf->stream) return;
  block->has_other_streams = true;
  waits_.add_use(block, stream, captures_ > 0);
}

void CachingAllocator::poll_waits(bool is_sync) {
  if (is_sync) {
    ++stats_.num_sync_all_streams;
    if (options_.on_sync) options_.on_sync();
  }
  if (waits_.is_idle()) return;
  for (Block* block : waits_.poll(is_sync)) complete_free(block);
}

void CachingAllocator::complete_free(Block* block) {
  if (block == nullptr || block->use != BlockUse::PendingFree) {
    throw UsageError("complete_free requires a freed block that waits for other streams");
  }
  waits_.forget(block);
  block->has_other_streams = false;
  finish_free(block);
}

void CachingAllocator::finish_free(Block* block) {
  const bool is_small = block->segment->shelf->pool->is_small;
  stats_.active.decrease(is_small, 1);
  stats_.active_bytes.decrease(is_small, block->size_bytes);
  stats_.requested_bytes.decrease(is_small, block->requested_bytes);
  block->use = BlockUse::Free;
  block->requested_bytes = 0;

  const Merged merged = merge_with_neighbours(block);
  block = merged.block;
  put_on_shelf(block);
  if (!block->segment->is_expandable()) {
    const bool is_split = block->is_split();
    stats_.inactive_split.change(is_small, (is_split ? 1 : 0) - merged.count);
    stats_.inactive_split_bytes.change(is_small,
                                       (is_split ? block->size_bytes : 0) - merged.size_bytes);
  }
}

/// `block` must be free and on no shelf; the merged block is on no shelf either.
CachingAllocator::Merged CachingAllocator::merge_with_neighbours(Block* block) {
  Merged merged{block};
  const auto absorbs = [&](const Block* neighbour) {
    return neighbour != nullptr && neighbour->use == BlockUse::Free &&
           neighbour->is_mapped == block->is_mapped;
  };
  const auto join = [&](Block* lower, Block* upper, Block* neighbour) {
    take_off_shelf(neighbour);
    ++merged.count;
    merged.size_bytes += neighbour->size_bytes;
    lower->size_bytes += upper->size_bytes;
    lower->next = upper->next;
    if (lower->next != nullptr) lower->next->prev = lower;
    arena_.recycle(upper);
    merged.block = lower;
  };
  Block* below = block->prev;
  Block* above = block->next;
  const bool takes_above = absorbs(above);
  if (absorbs(below)) join(below, block, below);
  if (takes_above) join(merged.block, above, above);
  return merged;
}

void CachingAllocator::put_on_shelf(Block* block) {
  Shelf& shelf = *block->segment->shelf;
  if (!block->is_mapped) {
    shelf.unmapped.insert(block);
    return;
  }
  block->free_since = shelf.pool->searches;
  block->position = shelf.free.insert(block).first;
}

void CachingAllocator::take_off_shelf(Block* block) {
  Shelf& shelf = *block->segment->shelf;
  if (block->is_mapped) {
    shelf.free.erase(block->position);
  } else {
    shelf.unmapped.erase(block);
  }
}

}  // namespace tidegauge
