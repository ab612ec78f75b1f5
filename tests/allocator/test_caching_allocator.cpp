// SPDX-License-Identifier: BSD-3-Clause
// Plain segments: search, split, merge, streams, release, limits. The sizes are small enough to
// follow by hand; docs/allocator.md has the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "allocator/caching_allocator.h"
#include "layout_checks.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

AllocatorOptions with(const std::string& settings, int64_t total_bytes = kNoLimit) {
  AllocatorOptions options;
  options.config = parse_alloc_config(settings);
  options.total_bytes = total_bytes;
  return options;
}

int64_t mib(const CachingAllocator& allocator) { return allocator.reserved_bytes() / kMiB; }

TEST(CachingAllocator, SmallRequestsShareA2MiBSegment) {
  CachingAllocator allocator;
  const Block* a = allocator.malloc(1000);
  const Block* b = allocator.malloc(1);
  EXPECT_EQ(b->address, a->address + 1024);
  EXPECT_EQ(show(allocator.layout()), "[1024* 512* 2095616]");
}

TEST(CachingAllocator, MediumRequestsShareA20MiBSegment) {
  CachingAllocator allocator;
  allocator.malloc(kMiB + 1);
  EXPECT_EQ(show(allocator.layout()), "[1049088* 19922432]");
  allocator.malloc(9 * kMiB);
  EXPECT_EQ(mib(allocator), 20);
}

TEST(CachingAllocator, LargeRequestsGetTheirOwnSegment) {
  CachingAllocator allocator;
  allocator.malloc(11 * kMiB + 1);  // rounded up to 2 MiB
  EXPECT_EQ(show(allocator.layout()), "[12M*]");
  allocator.malloc(10 * kMiB + 1);
  EXPECT_EQ(show(allocator.layout()), "[12M*] [10486272* 2096640]");
}

TEST(CachingAllocator, UpToOneMiBIsNotSplitOff) {
  CachingAllocator allocator;
  allocator.malloc(11 * kMiB);  // of 12
  EXPECT_EQ(show(allocator.layout()), "[12M*]");
  EXPECT_EQ(allocator.stats().active_bytes.all().current, 12 * kMiB);
  EXPECT_EQ(allocator.stats().requested_bytes.all().current, 11 * kMiB);
  allocator.free(allocator.malloc(19 * kMiB - 512));  // of 20: 1 MiB + 512 are left
  EXPECT_EQ(show(allocator.layout()), "[12M*] [20M]");
  allocator.malloc(19 * kMiB - 512);
  EXPECT_EQ(show(allocator.layout()), "[12M*] [19922432* 1049088]");
}

TEST(CachingAllocator, TakesTheSmallestBlockThatFits) {
  CachingAllocator allocator;
  Block* large = allocator.malloc(40 * kMiB);
  Block* fitting = allocator.malloc(30 * kMiB);
  Block* small = allocator.malloc(20 * kMiB);
  const int64_t address = fitting->address;
  for (Block* block : {large, fitting, small}) allocator.free(block);
  EXPECT_EQ(allocator.malloc(28 * kMiB)->address, address);
}

TEST(CachingAllocator, TiesGoToTheOldestSegmentOrTheLowestAddress) {
  for (const TieRule tie : {TieRule::SegmentCounter, TieRule::Address}) {
    AllocatorOptions options;
    options.tie = tie;
    int64_t next = int64_t{1} << 40;
    options.place = [&](int64_t, bool) { return next -= 100 * kMiB; };  // each lower than before
    CachingAllocator allocator(options);
    Block* older = allocator.malloc(30 * kMiB);
    Block* younger = allocator.malloc(30 * kMiB);
    const int64_t expected = tie == TieRule::SegmentCounter ? older->address : younger->address;
    allocator.free(older);
    allocator.free(younger);
    EXPECT_EQ(allocator.malloc(30 * kMiB)->address, expected);
  }
}

TEST(CachingAllocator, Torch212BreaksTiesByCounterOnlyInPrivatePools) {
  AllocatorOptions options;
  options.tie = TieRule::PrivateCounter;
  int64_t next = int64_t{1} << 40;
  options.place = [&](int64_t, bool) { return next -= 100 * kMiB; };  // each lower than before
  CachingAllocator allocator(options);
  const PoolId pool{0, 1};
  allocator.create_pool(pool);
  for (const PoolId each : {PoolId{}, pool}) {
    Block* older = allocator.malloc(30 * kMiB, 0, each);
    Block* younger = allocator.malloc(30 * kMiB, 0, each);
    const int64_t expected = each.is_default() ? younger->address : older->address;
    allocator.free(older);
    allocator.free(younger);
    EXPECT_EQ(allocator.malloc(30 * kMiB, 0, each)->address, expected);
  }
}

TEST(CachingAllocator, TiesWithinASegmentGoToTheLowestAddress) {
  CachingAllocator allocator;
  Block* blocks[5];
  for (Block*& block : blocks) block = allocator.malloc(2 * kMiB);
  const int64_t lower = blocks[1]->address;
  allocator.free(blocks[3]);
  allocator.free(blocks[1]);
  EXPECT_EQ(allocator.malloc(2 * kMiB)->address, lower);
}

TEST(CachingAllocator, FreeMergesBothNeighbours) {
  CachingAllocator allocator;
  Block* a = allocator.malloc(2 * kMiB);
  Block* b = allocator.malloc(2 * kMiB);
  Block* c = allocator.malloc(2 * kMiB);
  allocator.free(a);
  allocator.free(c);
  EXPECT_EQ(show(allocator.layout()), "[2M 2M* 16M]");
  allocator.free(b);
  EXPECT_EQ(show(allocator.layout()), "[20M]");
  check_invariants(allocator);
}

TEST(CachingAllocator, BlocksStayWithTheirStream) {
  CachingAllocator allocator;
  allocator.free(allocator.malloc(30 * kMiB, /*stream=*/1));
  allocator.malloc(30 * kMiB, /*stream=*/2);
  EXPECT_EQ(mib(allocator), 60);
  allocator.malloc(30 * kMiB, /*stream=*/1);
  EXPECT_EQ(mib(allocator), 60);
}

TEST(CachingAllocator, EmptyCacheKeepsSegmentsInUse) {
  CachingAllocator allocator;
  allocator.malloc(2 * kMiB);
  Block* alone = allocator.malloc(30 * kMiB);
  allocator.free(alone);
  EXPECT_EQ(mib(allocator), 50);
  allocator.empty_cache();
  EXPECT_EQ(show(allocator.layout()), "[2M* 18M]");
  EXPECT_EQ(allocator.stats().num_device_free, 1);
}

TEST(CachingAllocator, OutOfMemoryReleasesTheCacheAndTriesAgain) {
  CachingAllocator allocator(with("", 100 * kMiB));
  allocator.free(allocator.malloc(60 * kMiB));
  ASSERT_NE(allocator.malloc(80 * kMiB), nullptr);
  EXPECT_EQ(mib(allocator), 80);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 1);
  EXPECT_EQ(allocator.stats().num_ooms, 0);
  EXPECT_EQ(allocator.malloc(30 * kMiB), nullptr);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 2);
  EXPECT_EQ(allocator.stats().num_ooms, 1);
  ASSERT_NE(allocator.malloc(20 * kMiB), nullptr);
  check_invariants(allocator);
}

TEST(CachingAllocator, MemoryUsedOutsideIsNotAvailable) {
  AllocatorOptions options = with("", 100 * kMiB);
  options.outside_bytes = 30 * kMiB;
  CachingAllocator allocator(options);
  EXPECT_EQ(allocator.malloc(72 * kMiB), nullptr);
  EXPECT_NE(allocator.malloc(70 * kMiB), nullptr);
}

TEST(CachingAllocator, MemoryFractionIsALimit) {
  AllocatorOptions options = with("", 1000 * kMiB);
  options.memory_fraction = 0.1;
  CachingAllocator allocator(options);
  EXPECT_NE(allocator.malloc(100 * kMiB), nullptr);
  EXPECT_EQ(allocator.malloc(1), nullptr);
  EXPECT_THROW(CachingAllocator(with("per_process_memory_fraction:0.5")), UsageError);
}

TEST(CachingAllocator, RejectionDoesNotReleaseTheCache) {
  CachingAllocator allocator(
      with("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5", 200 * kMiB));
  allocator.free(allocator.malloc(60 * kMiB));
  EXPECT_EQ(allocator.malloc(80 * kMiB), nullptr);
  EXPECT_EQ(mib(allocator), 60);
  EXPECT_EQ(allocator.stats().num_oom_rejections, 1);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 0);
  EXPECT_EQ(allocator.stats().num_ooms, 1);
}

TEST(CachingAllocator, BlocksAboveMaxSplitServeOnlySimilarSizes) {
  CachingAllocator allocator(with("max_split_size_mb:40"));
  Block* oversize = allocator.malloc(60 * kMiB);
  EXPECT_EQ(allocator.stats().oversize_allocations.current, 1);
  EXPECT_EQ(allocator.stats().oversize_segments.current, 1);
  allocator.free(oversize);
  allocator.malloc(30 * kMiB);  // below 40: may not cut the 60
  EXPECT_EQ(show(allocator.layout()), "[60M] [30M*]");
  Block* near = allocator.malloc(42 * kMiB);  // 60 is less than 42 + 20
  EXPECT_EQ(show(allocator.layout()), "[60M*] [30M*]");
  allocator.free(near);
  allocator.malloc(40 * kMiB);  // 60 is not less than 40 + 20
  EXPECT_EQ(show(allocator.layout()), "[60M] [30M*] [40M*]");
  EXPECT_EQ(allocator.stats().oversize_segments.current, 2);
}

TEST(CachingAllocator, OversizeBlocksAreReleasedFirstAndOnlyAsNeeded) {
  CachingAllocator allocator(with("max_split_size_mb:40", 200 * kMiB));
  Block* a = allocator.malloc(50 * kMiB);
  Block* b = allocator.malloc(70 * kMiB);
  Block* c = allocator.malloc(30 * kMiB);
  for (Block* block : {a, b, c}) allocator.free(block);
  allocator.malloc(92 * kMiB);  // neither alone suffices: 70, then 50 are released, the 30 stays
  EXPECT_EQ(show(allocator.layout()), "[30M] [92M*]");
  EXPECT_EQ(allocator.stats().num_alloc_retries, 0);
  EXPECT_EQ(allocator.stats().num_sync_all_streams, 0);
}

TEST(CachingAllocator, TooFewOversizeBlocksReleaseTheWholeCache) {
  CachingAllocator allocator(with("max_split_size_mb:40", 110 * kMiB));
  Block* a = allocator.malloc(50 * kMiB);
  Block* b = allocator.malloc(30 * kMiB);
  Block* c = allocator.malloc(kMiB);
  for (Block* block : {a, b, c}) allocator.free(block);
  allocator.malloc(72 * kMiB);  // the 50 are not enough, and the 30 are not oversize
  EXPECT_EQ(show(allocator.layout()), "[72M*]");
  EXPECT_EQ(allocator.stats().num_alloc_retries, 1);
}

TEST(CachingAllocator, GarbageCollectionReleasesBlocksOlderThanAverage) {
  AllocatorOptions options = with("garbage_collection_threshold:0.5", 200 * kMiB);
  options.memory_fraction = 0.99999999;  // collection needs a limit
  CachingAllocator allocator(options);
  Block* old = allocator.malloc(40 * kMiB);
  Block* recent = allocator.malloc(62 * kMiB);
  allocator.free(old);
  for (int i = 0; i < 4; ++i) {  // each is a search: `old` ages by 4, `recent` starts at 0
    allocator.free(recent);
    recent = allocator.malloc(62 * kMiB);
  }
  allocator.free(recent);
  // 102 are above 100; the average age of 5 and 1 is 3, so the 40 are released and the 62 stay.
  allocator.malloc(64 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[62M] [64M*]");
}

TEST(CachingAllocator, BlocksUsedByOtherStreamsWaitForTheNextMalloc) {
  CachingAllocator allocator;
  Block* block = allocator.malloc(30 * kMiB);
  allocator.record_stream(block, 7);
  allocator.free(block);
  EXPECT_EQ(show(allocator.layout()), "[30M?]");
  EXPECT_EQ(allocator.stats().allocated_bytes.all().current, 0);
  EXPECT_EQ(allocator.stats().active_bytes.all().current, 30 * kMiB);
  EXPECT_EQ(allocator.stats().requested_bytes.all().current, 30 * kMiB);
  allocator.malloc(30 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[30M*]");
}

TEST(CachingAllocator, SlowStreamsHoldTheirBlocksUntilASync) {
  AllocatorOptions options;
  options.deferred = DeferredFrees::AtSync;
  CachingAllocator allocator(options);
  Block* block = allocator.malloc(30 * kMiB);
  allocator.record_stream(block, 7);
  allocator.record_stream(block, 8);
  allocator.free(block);
  Block* other = allocator.malloc(30 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[30M?] [30M*]");
  allocator.synchronize_host();
  EXPECT_EQ(show(allocator.layout()), "[30M?] [30M*]") << "torch polls only at a malloc";
  allocator.malloc(30 * kMiB);
  EXPECT_EQ(show(allocator.layout()), "[30M*] [30M*]");
  allocator.record_stream(other, 7);
  allocator.free(other);
  allocator.empty_cache();
  EXPECT_EQ(show(allocator.layout()), "[30M*]");
  EXPECT_EQ(allocator.stats().num_sync_all_streams, 1);
}

TEST(CachingAllocator, UseOnOwnStreamDoesNotDelayFree) {
  CachingAllocator allocator;
  Block* block = allocator.malloc(30 * kMiB, 3);
  allocator.record_stream(block, 3);
  allocator.free(block);
  EXPECT_EQ(show(allocator.layout()), "[30M]");
}

TEST(CachingAllocator, WaitingBlocksAreNotMerged) {
  AllocatorOptions options;
  options.deferred = DeferredFrees::ByCaller;
  CachingAllocator allocator(options);
  Block* a = allocator.malloc(2 * kMiB);
  Block* b = allocator.malloc(2 * kMiB);
  allocator.record_stream(a, 1);
  allocator.free(a);
  allocator.free(b);
  EXPECT_EQ(show(allocator.layout()), "[2M? 18M]");
  allocator.complete_free(a);
  EXPECT_EQ(show(allocator.layout()), "[20M]");
  check_invariants(allocator);
}

TEST(CachingAllocator, NothingIsPolledOrReleasedDuringACapture) {
  CachingAllocator allocator(with("", 80 * kMiB));
  Block* before = allocator.malloc(20 * kMiB);
  Block* within = allocator.malloc(20 * kMiB);
  allocator.record_stream(before, 1);
  allocator.begin_capture();
  allocator.record_stream(within, 1);
  allocator.free(before);
  allocator.free(within);
  allocator.free(allocator.malloc(30 * kMiB));
  EXPECT_EQ(allocator.malloc(40 * kMiB), nullptr);
  EXPECT_EQ(show(allocator.layout()), "[20M?] [20M?] [30M]");
  allocator.end_capture();
  EXPECT_NE(allocator.malloc(80 * kMiB), nullptr);
  EXPECT_EQ(show(allocator.layout()), "[80M*]");
  EXPECT_THROW(allocator.end_capture(), UsageError);
}

TEST(CachingAllocator, UsesWithinACaptureEndWithIt) {
  AllocatorOptions options;
  options.deferred = DeferredFrees::AtSync;
  CachingAllocator allocator(options);
  Block* before = allocator.malloc(20 * kMiB);
  Block* within = allocator.malloc(30 * kMiB);
  allocator.record_stream(before, 1);
  allocator.begin_capture();
  allocator.record_stream(within, 1);
  allocator.free(before);
  allocator.free(within);
  allocator.end_capture();
  allocator.malloc(1);
  EXPECT_EQ(show(allocator.layout()), "[20M?] [30M] [512* 2096640]");
}

TEST(CachingAllocator, StatsOfASmallTrainingRun) {
  CachingAllocator allocator;
  Block* weight = allocator.malloc(600'000);      // 600,064 of a small segment
  Block* gradient = allocator.malloc(3'000'000);  // 3,000,320 of a medium one
  allocator.free(gradient);
  FlatStats flat = allocator.flat_stats();
  const std::map<std::string, int64_t> stats(flat.begin(), flat.end());
  EXPECT_EQ(stats.size(), 9u * 3 * 4 + 2 * 4 + 7);
  EXPECT_TRUE(std::is_sorted(flat.begin(), flat.end()));
  EXPECT_EQ(stats.at("allocation.all.allocated"), 2);
  EXPECT_EQ(stats.at("allocation.all.current"), 1);
  EXPECT_EQ(stats.at("allocated_bytes.small_pool.current"), 600'064);
  EXPECT_EQ(stats.at("active_bytes.large_pool.peak"), 3'000'320);
  EXPECT_EQ(stats.at("active_bytes.all.peak"), 3'600'384);
  EXPECT_EQ(stats.at("requested_bytes.all.freed"), 3'000'000);
  EXPECT_EQ(stats.at("segment.all.current"), 2);
  EXPECT_EQ(stats.at("reserved_bytes.all.current"), 22 * kMiB);
  EXPECT_EQ(stats.at("inactive_split_bytes.small_pool.current"), 2 * kMiB - 600'064);
  EXPECT_EQ(stats.at("inactive_split_bytes.large_pool.current"), 0) << "whole again";
  EXPECT_EQ(stats.at("inactive_split.large_pool.freed"), 1);
  EXPECT_EQ(stats.at("max_split_size"), -1);
  EXPECT_EQ(stats.at("num_device_alloc"), 2);
  allocator.free(weight);
  allocator.stats().reset_peak();
  allocator.stats().reset_accumulated();
  flat = allocator.flat_stats();
  for (const auto& [name, value] : flat) {
    const bool is_of_blocks = name.starts_with("allocat") || name.starts_with("active");
    EXPECT_EQ(is_of_blocks ? value : 0, 0) << name;
  }
}

TEST(CachingAllocator, CountersOfARunThatEndsOutOfMemory) {
  AllocatorOptions options;
  options.config = parse_alloc_config("max_split_size_mb:20");
  options.total_bytes = 64 * kMiB;
  CachingAllocator allocator(options);
  allocator.free(allocator.malloc(30 * kMiB));
  allocator.malloc(kMiB);                               // half of a small segment
  ASSERT_NE(allocator.malloc(40 * kMiB), nullptr);      // after the cached 30 MiB were released
  EXPECT_EQ(allocator.malloc(40 * kMiB - 1), nullptr);  // nothing is left to release
  const FlatStats flat = allocator.flat_stats();
  const std::map<std::string, int64_t> stats(flat.begin(), flat.end());
  const auto expect = [&](const std::string& name, std::vector<int64_t> expected) {
    const std::vector<int64_t> found{stats.at(name + ".current"), stats.at(name + ".peak"),
                                     stats.at(name + ".allocated"), stats.at(name + ".freed")};
    EXPECT_EQ(found, expected) << name;
  };
  for (const std::string name : {"allocation", "active"}) {
    expect(name + ".small_pool", {1, 1, 1, 0});
    expect(name + ".large_pool", {1, 1, 2, 1});
    expect(name + ".all", {2, 2, 3, 1});
  }
  for (const std::string name : {"allocated_bytes", "active_bytes", "requested_bytes"}) {
    expect(name + ".small_pool", {kMiB, kMiB, kMiB, 0});
    expect(name + ".large_pool", {40 * kMiB, 40 * kMiB, 70 * kMiB, 30 * kMiB});
    expect(name + ".all", {41 * kMiB, 41 * kMiB, 71 * kMiB, 30 * kMiB});
  }
  expect("segment.small_pool", {1, 1, 1, 0});
  expect("segment.large_pool", {1, 1, 2, 1});
  expect("segment.all", {2, 2, 3, 1});
  expect("reserved_bytes.small_pool", {2 * kMiB, 2 * kMiB, 2 * kMiB, 0});
  expect("reserved_bytes.large_pool", {40 * kMiB, 40 * kMiB, 70 * kMiB, 30 * kMiB});
  expect("reserved_bytes.all", {42 * kMiB, 42 * kMiB, 72 * kMiB, 30 * kMiB});
  for (const std::string pool : {"small_pool", "all"}) {
    expect("inactive_split." + pool, {1, 1, 1, 0});
    expect("inactive_split_bytes." + pool, {kMiB, kMiB, kMiB, 0});
  }
  expect("inactive_split.large_pool", {0, 0, 0, 0});
  expect("inactive_split_bytes.large_pool", {0, 0, 0, 0});
  expect("oversize_allocations", {1, 1, 2, 1});
  expect("oversize_segments", {1, 1, 2, 1});
  EXPECT_EQ(stats.at("num_alloc_retries"), 2);
  EXPECT_EQ(stats.at("num_ooms"), 1);
  EXPECT_EQ(stats.at("num_sync_all_streams"), 2);
  EXPECT_EQ(stats.at("num_device_alloc"), 3);
  EXPECT_EQ(stats.at("num_device_free"), 1);
  EXPECT_EQ(stats.at("num_oom_rejections"), 0);
  EXPECT_EQ(stats.at("max_split_size"), 20 * kMiB);
}

TEST(CachingAllocator, WrongUseIsRefused) {
  CachingAllocator allocator;
  EXPECT_THROW(allocator.malloc(0), UsageError);
  EXPECT_THROW(allocator.malloc(int64_t{1} << 60), UsageError);
  EXPECT_THROW(allocator.malloc(1, 0, {3, 4}), UsageError);
  Block* block = allocator.malloc(100);
  EXPECT_THROW(allocator.complete_free(block), UsageError);
  allocator.free(block);
  EXPECT_THROW(allocator.free(block), UsageError);
  EXPECT_THROW(allocator.record_stream(block, 1), UsageError);
  EXPECT_THROW(allocator.create_pool({0, 0}), UsageError);
}

}  // namespace
}  // namespace tidegauge
