// SPDX-License-Identifier: BSD-3-Clause
#include "layout_checks.h"

#include <gtest/gtest.h>

#include "allocator/rounding.h"

namespace tidegauge {

std::string show(const Layout& layout) {
  std::string text;
  for (const SegmentState& segment : layout) {
    text += text.empty() ? "[" : " [";
    for (const BlockState& block : segment.blocks) {
      if (&block != &segment.blocks.front()) text += " ";
      text += block.size_bytes % kMiB == 0 ? std::to_string(block.size_bytes / kMiB) + "M"
                                           : std::to_string(block.size_bytes);
      if (block.use != BlockUse::Free) text += block.use == BlockUse::Allocated ? "*" : "?";
    }
    text += "]";
  }
  return text;
}

void check_invariants(const CachingAllocator& allocator) {
  const Layout layout = allocator.layout();
  const MemoryStats& stats = allocator.stats();
  int64_t reserved = 0, active = 0, allocated = 0, requested = 0, splits = 0, split_bytes = 0;
  int64_t active_count = 0, allocated_count = 0, plain_segments = 0;
  int64_t end_of_last = 0;
  for (const SegmentState& segment : layout) {
    ASSERT_GE(segment.address, end_of_last);
    end_of_last = segment.address + segment.size_bytes;
    reserved += segment.size_bytes;
    plain_segments += segment.is_expandable ? 0 : 1;
    int64_t address = segment.address;
    bool was_free = false;
    for (const BlockState& block : segment.blocks) {
      ASSERT_EQ(block.address, address);
      ASSERT_GT(block.size_bytes, 0);
      ASSERT_EQ(block.size_bytes % kDeviceBlockBytes, 0);
      address += block.size_bytes;
      const bool is_free = block.use == BlockUse::Free;
      ASSERT_FALSE(is_free && was_free) << "two free neighbours at " << block.address;
      was_free = is_free;
      if (is_free) {
        if (segment.blocks.size() > 1 && !segment.is_expandable) {
          ++splits;
          split_bytes += block.size_bytes;
        }
        continue;
      }
      ASSERT_LE(block.requested_bytes, block.size_bytes);
      ++active_count;
      active += block.size_bytes;
      requested += block.requested_bytes;
      if (block.use == BlockUse::Allocated) {
        ++allocated_count;
        allocated += block.size_bytes;
      }
    }
    ASSERT_EQ(address, end_of_last);
  }
  EXPECT_EQ(stats.reserved_bytes.all().current, reserved);
  EXPECT_EQ(stats.active_bytes.all().current, active);
  EXPECT_EQ(stats.active.all().current, active_count);
  EXPECT_EQ(stats.allocated_bytes.all().current, allocated);
  EXPECT_EQ(stats.allocation.all().current, allocated_count);
  EXPECT_EQ(stats.requested_bytes.all().current, requested);
  EXPECT_EQ(stats.segment.all().current, plain_segments);
  EXPECT_EQ(stats.inactive_split.all().current, splits);
  EXPECT_EQ(stats.inactive_split_bytes.all().current, split_bytes);
  for (const StatByPool* stat : {&stats.reserved_bytes, &stats.active_bytes, &stats.allocated_bytes,
                                 &stats.requested_bytes, &stats.inactive_split_bytes}) {
    EXPECT_EQ(stat->all().current, stat->small_pool().current + stat->large_pool().current);
    EXPECT_EQ(stat->all().current, stat->all().allocated - stat->all().freed);
    EXPECT_GE(stat->all().peak, stat->all().current);
  }
  EXPECT_GE(reserved, active);
  EXPECT_GE(active, allocated);
}

}  // namespace tidegauge
