// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "allocator/caching_allocator.h"
#include "layout_checks.h"

namespace tidegauge {
namespace {

AllocConfig growing() { return parse_alloc_config("expandable_segments:True"); }

AllocatorOptions expandable(int64_t total_bytes = int64_t{1} << 36) {
  AllocatorOptions options;
  options.config = growing();
  options.total_bytes = total_bytes;
  return options;
}

int64_t mib(const CachingAllocator& allocator) { return allocator.reserved_bytes() / kMiB; }

TEST(ExpandableSegments, GrowByWholePages) {
  CachingAllocator allocator(expandable());
  Block* block = allocator.malloc(2 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[2M* 18M]");
  allocator.free(block);
  block = allocator.malloc(32 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[32M* 8M]");
  allocator.free(block);
  allocator.malloc(2 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[2M* 38M]");
  EXPECT_EQ(allocator.stats().segment.all().current, 0);
  EXPECT_EQ(allocator.stats().num_device_alloc, 2);
}

TEST(ExpandableSegments, OnlyMissingPagesAreMapped) {
  std::vector<TraceEvent> events;
  AllocatorOptions options = expandable();
  options.on_segment_event = [&](const TraceEvent& event) { events.push_back(event); };
  CachingAllocator allocator(options);
  allocator.malloc(int64_t{1272} * kMiB / 10);  // 127.2 MiB
  EXPECT_EQ(mib(allocator), 140);
  allocator.malloc(15 * kMiB);  // 12.8 are left
  EXPECT_EQ(mib(allocator), 160);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].action, TraceAction::SegmentMap);
  EXPECT_EQ(events[1].size_bytes, 20 * kMiB);
  EXPECT_EQ(events[1].address, events[0].address + 140 * kMiB);
}

TEST(ExpandableSegments, SmallPagesAre2MiB) {
  CachingAllocator allocator(expandable());
  allocator.malloc(kMiB);
  allocator.malloc(kMiB);
  allocator.malloc(kMiB);
  EXPECT_EQ(show(allocator.layout()), "[1M* 1M* 1M* 1M]");
}

TEST(ExpandableSegments, RestOfAnySizeIsSplitOff) {
  CachingAllocator allocator(expandable());
  allocator.malloc(20 * kMiB - 512);
  EXPECT_EQ(show(allocator.layout()), "[20971008* 512]");
  EXPECT_EQ(allocator.stats().inactive_split.all().current, 0);
}

TEST(ExpandableSegments, TheTailIsUsedLast) {
  CachingAllocator allocator(expandable());
  Block* first = allocator.malloc(15 * kMiB);
  allocator.malloc(2 * kMiB);
  const int64_t address = first->address;
  allocator.free(first);
  EXPECT_EQ(show(allocator.layout()), "[15M 2M* 3M]");
  // 3 MiB would be the better fit, but that block can still grow.
  EXPECT_EQ(allocator.malloc(3 * kMiB)->address, address);
  EXPECT_EQ(show(allocator.layout()), "[3M* 12M 2M* 3M]");
}

TEST(ExpandableSegments, StreamsHaveTheirOwnRanges) {
  CachingAllocator allocator(expandable());
  allocator.malloc(30 * kMiB, 1);
  allocator.malloc(30 * kMiB, 2);
  EXPECT_EQ(show(allocator.layout()), "[30M* 10M] [30M* 10M]");
}

TEST(ExpandableSegments, EmptyCacheUnmapsWholePages) {
  CachingAllocator allocator(expandable());
  Block* a = allocator.malloc(10 * kMiB);
  Block* b = allocator.malloc(60 * kMiB);
  allocator.malloc(5 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[10M* 60M* 5M* 5M]");
  allocator.free(b);
  allocator.empty_cache();  // pages 20-40, 40-60 of the block at 10-70
  EXPECT_EQ(show(allocator.layout()), "[10M* 10M] [10M 5M* 5M]");
  EXPECT_EQ(mib(allocator), 40);
  EXPECT_EQ(allocator.stats().num_device_free, 1);
  allocator.free(a);
  allocator.empty_cache();
  EXPECT_EQ(show(allocator.layout()), "[10M 5M* 5M]");
  check_invariants(allocator);
}

TEST(ExpandableSegments, GapsAreFilledFirst) {
  CachingAllocator allocator(expandable());
  Block* a = allocator.malloc(60 * kMiB);
  allocator.malloc(20 * kMiB);
  const int64_t start = a->address;
  allocator.free(a);
  allocator.empty_cache();
  EXPECT_EQ(show(allocator.layout()), "[20M*]");
  EXPECT_EQ(allocator.malloc(30 * kMiB)->address, start);
  EXPECT_EQ(show(allocator.layout()), "[30M* 10M] [20M*]");
  // The rest of the gap is too small: 10 free and 20 unmapped, so the end grows.
  EXPECT_EQ(allocator.malloc(40 * kMiB)->address, start + 80 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[30M* 10M] [20M* 40M*]");
}

TEST(ExpandableSegments, RangeWithoutPagesIsRemoved) {
  CachingAllocator allocator(expandable());
  allocator.free(allocator.malloc(60 * kMiB));
  allocator.empty_cache();
  EXPECT_EQ(show(allocator.layout()), "");
  EXPECT_EQ(mib(allocator), 0);
}

TEST(ExpandableSegments, OutOfMemoryUnmapsFreePagesOfAllRangesAndTriesAgain) {
  CachingAllocator allocator(expandable(100 * kMiB));
  allocator.free(allocator.malloc(60 * kMiB, 1));
  Block* kept = allocator.malloc(10 * kMiB, 2);
  EXPECT_EQ(mib(allocator), 80);
  allocator.malloc(30 * kMiB, 2);  // 10 are mapped, 20 more can be
  EXPECT_EQ(mib(allocator), 100);
  ASSERT_NE(allocator.malloc(50 * kMiB, 2), nullptr);
  EXPECT_EQ(show(allocator.layout()), "[10M* 30M* 50M* 10M]");
  EXPECT_EQ(allocator.stats().num_alloc_retries, 1);
  EXPECT_EQ(allocator.malloc(30 * kMiB, 2), nullptr);
  EXPECT_EQ(allocator.stats().num_ooms, 1);
  allocator.free(kept);
  check_invariants(allocator);
}

TEST(ExpandableSegments, PagesMappedBeforeAFailureStay) {
  std::vector<TraceEvent> events;
  AllocatorOptions options = expandable(100 * kMiB);
  options.on_segment_event = [&](const TraceEvent& event) { events.push_back(event); };
  CachingAllocator allocator(options);
  Block* a = allocator.malloc(20 * kMiB);
  Block* b = allocator.malloc(20 * kMiB);
  Block* c = allocator.malloc(20 * kMiB);
  allocator.free(a);
  allocator.free(c);
  allocator.empty_cache();
  allocator.free(b);               // a gap of 20, 20 free, then the unmapped end
  allocator.malloc(50 * kMiB, 2);  // 80 are mapped now
  events.clear();
  // 55 need two times 20 more. The second fails; the pages of the first are released with the
  // cache.
  EXPECT_EQ(allocator.malloc(55 * kMiB), nullptr);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].action, TraceAction::SegmentMap);
  EXPECT_EQ(events[0].size_bytes, 20 * kMiB);
  EXPECT_EQ(events[1].action, TraceAction::SegmentUnmap);
  EXPECT_EQ(events[1].size_bytes, 40 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[50M* 10M]");
}

TEST(ExpandableSegments, RequestThatFitsNoRangeGetsANewOne) {
  CachingAllocator allocator(expandable(100 * kMiB));  // ranges of 120
  Block* a = allocator.malloc(40 * kMiB);
  allocator.malloc(20 * kMiB);
  allocator.free(a);
  allocator.empty_cache();
  EXPECT_NE(allocator.malloc(80 * kMiB), nullptr);  // only 60 follow the 20
  EXPECT_EQ(show(allocator.layout()), "[20M*] [80M*]");
}

TEST(ExpandableSegments, FreeEndIsExtended) {
  CachingAllocator allocator(expandable(100 * kMiB));
  allocator.malloc(30 * kMiB);
  allocator.malloc(50 * kMiB);  // 10 are mapped, 40 more are added
  EXPECT_EQ(show(allocator.layout()), "[30M* 50M*]");
}

TEST(ExpandableSegments, AreNotUsedAfterBeingSwitchedOff) {
  CachingAllocator allocator(expandable());
  allocator.free(allocator.malloc(40 * kMiB));
  allocator.set_config({});
  allocator.malloc(20 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[40M] [20M*]");
  allocator.set_config(growing());
  allocator.malloc(20 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[20M* 20M] [20M*]");
}

TEST(ExpandableSegments, PlainBlocksAreSplitExactlyWhileEnabled) {
  AllocatorOptions options;
  options.config = {};
  CachingAllocator allocator(options);
  allocator.free(allocator.malloc(20 * kMiB));
  allocator.set_config(growing());
  allocator.malloc(20 * kMiB - 1024);
  EXPECT_EQ(show(allocator.layout()), "[20970496* 1024]");
}

// Upstream's test_cuda.py: 40 plain + 40 expandable + 40 plain fit into 120, a fourth does not.
TEST(ExpandableSegments, MaxSplitWithBothKindsOfSegments) {
  AllocatorOptions options;
  options.total_bytes = 1200 * kMiB;
  options.memory_fraction = 0.1;
  options.config = parse_alloc_config("max_split_size_mb:40");
  const AllocConfig grown = parse_alloc_config("expandable_segments:True,max_split_size_mb:40");
  CachingAllocator allocator(options);
  Block* a = allocator.malloc(40 * kMiB);
  allocator.set_config(grown);
  Block* b = allocator.malloc(40 * kMiB);
  allocator.set_config(options.config);
  Block* c = allocator.malloc(40 * kMiB);
  EXPECT_EQ(mib(allocator), 120);
  EXPECT_EQ(allocator.malloc(40 * kMiB), nullptr);
  for (Block* block : {a, b, c}) allocator.free(block);
  EXPECT_NE(allocator.malloc(120 * kMiB), nullptr);
  EXPECT_EQ(mib(allocator), 120);
}

// Upstream's test_cuda.py: with 120 allowed, 40 plain and 40 expandable are freed for 80.
TEST(ExpandableSegments, GarbageCollectionWithBothKindsOfSegments) {
  AllocatorOptions options;
  options.total_bytes = 1200 * kMiB;
  options.memory_fraction = 0.1;
  options.config = parse_alloc_config("garbage_collection_threshold:0.5");
  const AllocConfig grown =
      parse_alloc_config("expandable_segments:True,garbage_collection_threshold:0.5");
  CachingAllocator allocator(options);
  Block* a = allocator.malloc(40 * kMiB);
  allocator.set_config(grown);
  Block* b = allocator.malloc(40 * kMiB);
  allocator.set_config(options.config);
  allocator.free(a);
  allocator.free(b);
  EXPECT_NE(allocator.malloc(80 * kMiB), nullptr);
  check_invariants(allocator);
}

TEST(ExpandableSegments, AdoptedRangeEndsAtTheNextSegment) {
  CachingAllocator allocator(expandable());
  const int64_t start = int64_t{1} << 40;
  Layout layout;
  for (const int64_t stream : {0, 1}) {
    const int64_t address = start + stream * 100 * kMiB;
    layout.push_back({address,
                      20 * kMiB,
                      stream,
                      {},
                      false,
                      true,
                      {{address, 20 * kMiB, 20 * kMiB, BlockUse::Allocated}}});
  }
  allocator.adopt(layout);
  EXPECT_EQ(allocator.malloc(80 * kMiB, 0)->address, start + 20 * kMiB);
  EXPECT_EQ(allocator.malloc(20 * kMiB, 1)->address, start + 120 * kMiB);
  EXPECT_GT(allocator.malloc(20 * kMiB, 0)->address, start + 140 * kMiB) << "a new range";
  check_invariants(allocator);
}

TEST(ExpandableSegments, AdoptedLayoutKeepsItsGaps) {
  CachingAllocator first(expandable());
  Block* a = first.malloc(10 * kMiB);
  Block* b = first.malloc(60 * kMiB);
  Block* c = first.malloc(5 * kMiB);
  first.free(b);
  first.empty_cache();
  CachingAllocator second(expandable());
  const std::vector<Block*> active = second.adopt(first.layout());
  ASSERT_EQ(active.size(), 2u);
  EXPECT_EQ(second.layout(), first.layout());
  // Both continue in the same way: the gap is filled, then the end grows.
  for (const int64_t size_bytes : {50 * kMiB, 30 * kMiB, 3 * kMiB}) {
    EXPECT_EQ(second.malloc(size_bytes)->address, first.malloc(size_bytes)->address);
  }
  first.free(a);
  first.free(c);
  for (Block* block : active) second.free(block);
  EXPECT_EQ(second.layout(), first.layout());
  check_invariants(second);
}

}  // namespace
}  // namespace tidegauge
