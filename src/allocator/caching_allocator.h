// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <vector>

#include "allocator/allocator_options.h"
#include "allocator/block.h"
#include "allocator/device_trace.h"
#include "allocator/memory_stats.h"
#include "allocator/stream_waits.h"

namespace tidegauge {

/// Simulates torch's caching allocator for one device: the same blocks, segments and figures.
/// docs/allocator.md has the rules and how they were checked.
///
///   malloc(n) -> round -> best fit among free blocks of this pool and stream -> split
///                           | none
///                           +-> collect garbage -> new segment, or more pages of an expandable one
///                                                    | out of memory
///                                                    +-> release cached segments, try again
///   free -> (wait for other streams) -> merge with free neighbours -> free again
///
/// Cost of malloc and free: O(log(free blocks of the stream)), plus the number of released
/// segments, plus the gaps in an expandable segment that grows. Blocks stay valid until they are
/// freed. Not thread-safe.
class CachingAllocator {
 public:
  explicit CachingAllocator(AllocatorOptions options = {});
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Null if out of memory. Throws UsageError for sizes that never reach torch's allocator, an
  /// unknown pool, or a block that is not allocated.
  Block* malloc(int64_t requested_bytes, int64_t stream = 0, PoolId pool = {});
  void free(Block* block);
  /// `stream` also uses the block, so a free waits for it.
  void record_stream(Block* block, int64_t stream);
  /// The other streams no longer use the freed block; for DeferredFrees::ByCaller.
  void complete_free(Block* block);
  /// The host waited for all streams: the next malloc finds their events done.
  void synchronize_host() { waits_.synchronize_host(); }
  void empty_cache() { release_cached(); }
  /// Replaces the settings from now on; existing segments stay unchanged.
  void set_config(const AllocConfig& config);

  /// Makes a pool with use count 1. Throws UsageError if it exists or is (0, 0).
  void create_pool(PoolId pool, PoolOptions options = {});
  bool has_pool(PoolId pool) const { return private_pools_.contains(pool); }
  bool is_pool_used(PoolId pool) const;
  void retain_pool(PoolId pool);
  /// The last release lets empty_cache() return the pool's memory.
  void release_pool(PoolId pool);
  /// Captures of CUDA graphs. No event is polled and no segment released until the last one ends.
  void begin_capture() { ++captures_; }
  void end_capture();
  /// Starts from a recorded state, before the first malloc; throws FormatError if it is impossible.
  /// Returns the active blocks in order.
  std::vector<Block*> adopt(const Layout& layout);
  Layout layout() const;
  const MemoryStats& stats() const { return stats_; }
  MemoryStats& stats() { return stats_; }
  FlatStats flat_stats() const;  ///< torch.cuda.memory_stats, private pools included
  int64_t reserved_bytes() const { return stats_.reserved_bytes.all().current; }
  /// True if a recorded request that got `new_bytes` from the driver may release cached memory.
  bool may_release_for(const TraceEvent& request, int64_t new_bytes);
  /// True if the freed block, once other streams have finished, would serve a recorded request, or
  /// be released for it before the segment at `first_released`.
  bool would_help(const Block& freed, const TraceEvent& request, int64_t first_released);
  const AllocatorOptions& options() const { return options_; }

 private:
  struct Request {
    int64_t requested_bytes;
    int64_t size_bytes;     // rounded
    int64_t segment_bytes;  // size of a new plain segment for it
    Shelf* shelf;
    bool is_rejected = false;
    bool is_small() const { return shelf->pool->is_small; }
  };
  struct Merged {
    Block* block;
    int count = 0;           // of absorbed neighbours
    int64_t size_bytes = 0;  // of them
  };
  struct Limits {
    int64_t device_bytes = kMaxDeviceBytes;  // limit of the driver
    int64_t allowed_bytes = kNoLimit;        // limit of the memory fraction
    int64_t reject_bytes = kNoLimit;         // limit of throw_on_cudamalloc_oom
    int64_t garbage_bytes = kNoLimit;        // garbage is collected above it
  };
  // caching_allocator.cpp
  void compute_limits();
  BlockPool& pool_for(int64_t size_bytes, PoolId pool);
  Request make_request(int64_t requested_bytes, int64_t stream, PoolId pool);
  Block* find_free_block(const Request& request) const;
  Block* take_free_block(const Request& request);
  Block* borrow_from_pools(const Request& request);
  bool should_split(const Block& block, const Request& request) const;
  Block* hand_out(Block* block, const Request& request);
  Block* cut(Block* block, int64_t at_bytes);
  void finish_free(Block* block);
  Merged merge_with_neighbours(Block* block);
  void put_on_shelf(Block* block);
  void take_off_shelf(Block* block);
  void poll_waits(bool is_sync);

  // segments.cpp
  Block* new_segment(Request& request);
  Block* new_plain_segment(const Request& request);
  Segment* add_segment(int64_t address, int64_t size_bytes, int64_t page_bytes, Shelf& shelf);
  int64_t place(int64_t size_bytes, bool is_expandable);
  void release_segment(Block* block);
  void release_shelf_segments(BlockPool& pool);
  void forget_ranges(BlockPool& pool);
  bool release_oversize(const Request& request);
  void release_cached();
  void collect_garbage();
  void count_reserved(const Segment& segment, int64_t change_bytes);
  void notify(TraceAction action, const Segment& segment, int64_t address, int64_t size_bytes);

  // expandable_segments.cpp
  Block* grow_expandable(const Request& request);
  Block* find_room(const Request& request);
  Block* map(Block* block, int64_t size_bytes);
  void unmap(Block* block);
  int64_t range_bytes(int64_t page_bytes) const;
  int64_t range_end(int64_t address, const Shelf& shelf) const;

  // adopt.cpp, private_pools.cpp
  Shelf& shelf_of(const SegmentState& state);
  Block* adopt_blocks(Block* block, const SegmentState& state, std::vector<Block*>& active);
  void adopt_block(Block* block, const BlockState& state, std::vector<Block*>& active);
  PrivatePool& private_pool(PoolId pool);

  AllocatorOptions options_;
  Limits limits_;
  MemoryStats stats_;
  BlockArena arena_;
  std::map<int64_t, Segment> segments_;  // by address
  BlockPool small_{true}, large_{false};
  std::map<PoolId, PrivatePool> private_pools_;
  StreamWaits waits_;
  int captures_ = 0;
  uint32_t last_counter_ = 0;
  int64_t next_address_;
};

}  // namespace tidegauge
