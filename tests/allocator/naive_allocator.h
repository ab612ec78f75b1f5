// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/allocator_options.h"
#include "allocator/device_trace.h"

namespace tidegauge {

/// Plain segments of the default pool, written as directly as the rules allow: every step walks
/// over all blocks. Slow, and written independently of the CachingAllocator, to check it.
class NaiveAllocator {
 public:
  NaiveAllocator(const AllocConfig& config, TieRule tie, int64_t total_bytes)
      : config_(config), tie_(tie), total_bytes_(total_bytes) {}

  /// The address, or kNoAddress if out of memory.
  int64_t malloc(int64_t requested_bytes, int64_t stream);
  void free(int64_t address);
  void empty_cache();

  int64_t reserved_bytes() const;
  /// By address.
  Layout layout() const;

 private:
  struct Candidate {
    size_t segment;
    size_t block;
  };

  const BlockState& at(Candidate place) const {
    return segments_[place.segment].blocks[place.block];
  }
  bool is_better(Candidate a, Candidate b) const;
  bool find(int64_t size_bytes, int64_t stream, Candidate* found) const;
  bool add_segment(int64_t size_bytes, int64_t stream, Candidate* found);
  bool release_oversize(int64_t size_bytes, int64_t stream);

  AllocConfig config_;
  TieRule tie_;
  int64_t total_bytes_;
  int64_t next_address_ = int64_t{1} << 30;
  Layout segments_;  // in the order of creation
};

}  // namespace tidegauge
