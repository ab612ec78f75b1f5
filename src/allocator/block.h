// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "allocator/allocator_options.h"
#include "allocator/device_trace.h"
#include "allocator/memory_stats.h"

namespace tidegauge {

struct Block;
struct Segment;
struct BlockPool;

/// The order of free blocks in a search: the smallest that fits, then the oldest segment (if the
/// tie rule uses segment counters), then the lowest address.
struct FitKey {
  int64_t size_bytes;
};
struct ByFit {
  using is_transparent = void;
  bool operator()(const Block* a, const Block* b) const;
  bool operator()(const Block* block, FitKey key) const;
};
struct ByAddress {
  bool operator()(const Block* a, const Block* b) const;
};
using FreeBlocks = std::set<Block*, ByFit>;
using UnmappedBlocks = std::set<Block*, ByAddress>;

/// A piece of a segment. Blocks never cross segments, streams or pools. Two free neighbours are
/// always merged into the lower one, so the first block of a segment stays the same.
struct Block {
  int64_t address = 0;
  int64_t size_bytes = 0;
  int64_t requested_bytes = 0;
  Block* prev = nullptr;  ///< neighbours in the segment
  Block* next = nullptr;
  Segment* segment = nullptr;
  FreeBlocks::const_iterator position;  ///< valid while free and mapped
  uint32_t tie = 0;                     ///< the segment's counter; 0 for the tie rule Address
  uint32_t free_since = 0;              ///< value of BlockPool::searches when it became free
  BlockUse use{};
  bool is_mapped = true;
  bool has_other_streams = false;

  bool is_split() const { return prev != nullptr || next != nullptr; }
};
static_assert(sizeof(Block) <= 72);

inline bool ByFit::operator()(const Block* a, const Block* b) const {
  if (a->size_bytes != b->size_bytes) return a->size_bytes < b->size_bytes;
  if (a->tie != b->tie) return a->tie < b->tie;
  return a->address < b->address;
}
inline bool ByFit::operator()(const Block* block, FitKey key) const {
  return block->size_bytes < key.size_bytes;
}
inline bool ByAddress::operator()(const Block* a, const Block* b) const {
  return a->address < b->address;
}

/// The free blocks of one pool and stream.
struct Shelf {
  BlockPool* pool = nullptr;
  int64_t stream = 0;
  FreeBlocks free;
  UnmappedBlocks unmapped;  ///< unmapped address space of expandable segments
};

struct PrivatePool;

/// Small or large blocks of the default pool or of a private one.
struct BlockPool {
  explicit BlockPool(bool small) : is_small(small) {}

  bool is_small;
  PrivatePool* owner = nullptr;  ///< null: the default pool
  uint32_t searches = 0;         ///< number of searches: the clock for the age of free blocks
  std::map<int64_t, Shelf> shelves;

  Shelf& shelf(int64_t stream) {
    if (last_ == nullptr || last_->stream != stream) {
      last_ = &shelves.try_emplace(stream, Shelf{this, stream, {}, {}}).first->second;
    }
    return *last_;
  }

 private:
  Shelf* last_ = nullptr;  // cached: nearly all requests use the same stream as the previous one
};

struct PrivatePool {
  PoolId id;
  PoolOptions options;
  BlockPool small{true};
  BlockPool large{false};
  StatByPool reserved_bytes;
  int64_t use_count = 1;  ///< at 0, its cache may be released
};

/// Memory from one cudaMalloc, or the address range of an expandable segment.
struct Segment {
  int64_t address = 0;
  int64_t size_bytes = 0;
  int64_t page_bytes = 0;  ///< 0: a plain segment, which is mapped completely
  Shelf* shelf = nullptr;
  Block* head = nullptr;
  uint32_t counter = 0;  ///< in the order of creation

  bool is_expandable() const { return page_bytes != 0; }
};

/// Owns all blocks; reuses recycled ones first.
class BlockArena {
 public:
  Block* make();
  void recycle(Block* block);

 private:
  static constexpr size_t kChunk = 512;
  std::vector<std::unique_ptr<Block[]>> chunks_;
  size_t used_in_last_ = kChunk;
  Block* spare_ = nullptr;  // linked by next
};

}  // namespace tidegauge
