// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "allocator/caching_allocator.h"
#include "layout_checks.h"

namespace tidegauge {
namespace {

constexpr PoolId kPool{0, 1};

AllocatorOptions with(const std::string& settings, int64_t total_bytes = int64_t{1} << 36) {
  AllocatorOptions options;
  options.config = parse_alloc_config(settings);
  options.total_bytes = total_bytes;
  return options;
}

/// `b = a.clone()`, then five times `b = b.clone() + 1`, captured into a pool: at most three live.
Block* clone_chain(CachingAllocator& allocator, int64_t size_bytes) {
  Block* b = allocator.malloc(size_bytes, 5, kPool);
  for (int i = 0; i < 5; ++i) {
    Block* cloned = allocator.malloc(size_bytes, 5, kPool);
    Block* sum = allocator.malloc(size_bytes, 5, kPool);
    allocator.free(cloned);
    allocator.free(b);
    b = sum;
  }
  return b;
}

struct GraphCase {
  int64_t size_bytes;
  int64_t captured_mib;  // reserved at the end of the capture
  int64_t left_mib;      // after the graph is destroyed and the cache emptied; b is still alive
};

void check_graph(const std::string& settings, const GraphCase& expected) {
  SCOPED_TRACE(settings + " " + std::to_string(expected.size_bytes));
  CachingAllocator allocator(with(settings));
  allocator.create_pool(kPool);
  allocator.begin_capture();
  clone_chain(allocator, expected.size_bytes);
  allocator.end_capture();
  EXPECT_EQ(allocator.reserved_bytes(), expected.captured_mib * kMiB);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved_bytes(), expected.captured_mib * kMiB) << "the graph needs it";
  allocator.release_pool(kPool);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved_bytes(), expected.left_mib * kMiB);
  check_invariants(allocator);
}

// The figures of upstream's test_graph_cudamalloc_cudafree and related tests.
TEST(PrivatePools, GraphsReserveAsMuchAsTorch) {
  for (const GraphCase& expected :
       {GraphCase{512, 2, 2}, GraphCase{kMiB, 4, 2}, GraphCase{kMiB + 512, 20, 20},
        GraphCase{10 * kMiB - 512, 40, 20}, GraphCase{10 * kMiB + 512, 36, 12}}) {
    check_graph("", expected);
  }
  for (const GraphCase& expected :
       {GraphCase{10 * kMiB - 512, 40, 40}, GraphCase{10 * kMiB + 512, 40, 20}}) {
    check_graph("expandable_segments:True", expected);
  }
}

TEST(PrivatePools, ShareNothingWithTheDefaultPool) {
  CachingAllocator allocator;
  allocator.create_pool(kPool);
  allocator.free(allocator.malloc(30 * kMiB));
  allocator.malloc(30 * kMiB, 0, kPool);
  EXPECT_EQ(show(allocator.layout()), "[30M] [30M*]");
  const FlatStats flat = allocator.flat_stats();
  const auto find = [&](const std::string& name) {
    return std::find_if(flat.begin(), flat.end(),
                        [&](const auto& stat) { return stat.first == name; })
        ->second;
  };
  EXPECT_EQ(find("reserved_bytes_by_private_pools.0_1.all.current"), 30 * kMiB);
  EXPECT_EQ(find("reserved_bytes.all.current"), 60 * kMiB);
}

// Upstream: 80 MiB allowed, 60 cached by default, 60 in another pool: the first are released.
TEST(PrivatePools, CacheIsReleasedForAnotherPool) {
  CachingAllocator allocator(with("", 80 * kMiB));
  allocator.create_pool(kPool);
  allocator.free(allocator.malloc(60 * kMiB));
  EXPECT_NE(allocator.malloc(60 * kMiB, 0, kPool), nullptr);
  EXPECT_EQ(allocator.reserved_bytes(), 60 * kMiB);
}

TEST(PrivatePools, WithoutSplittingEachRequestGetsASegment) {
  for (const bool no_split : {false, true}) {
    CachingAllocator allocator;
    allocator.create_pool(kPool, {.no_split = no_split});
    allocator.malloc(4 * kMiB, 0, kPool);
    allocator.malloc(4 * kMiB, 0, kPool);
    EXPECT_EQ(allocator.layout().size(), no_split ? 2u : 1u);
  }
}

TEST(PrivatePools, LendToTheDefaultPoolWhenMemoryIsShort) {
  for (const bool use_on_oom : {false, true}) {
    CachingAllocator allocator(with("", 60 * kMiB));
    allocator.create_pool(kPool, {.use_on_oom = use_on_oom});
    allocator.free(allocator.malloc(40 * kMiB, 0, kPool));
    Block* borrowed = allocator.malloc(30 * kMiB);
    EXPECT_EQ(borrowed != nullptr, use_on_oom);
    if (use_on_oom) {
      EXPECT_EQ(show(allocator.layout()), "[30M* 10M]");
      allocator.free(borrowed);
    }
    EXPECT_EQ(show(allocator.layout()), "[40M]");
    EXPECT_EQ(allocator.stats().num_alloc_retries, use_on_oom ? 0 : 1);
  }
}

TEST(PrivatePools, RangeWithoutMemoryIsRemovedWithItsPool) {
  CachingAllocator allocator(with("expandable_segments:True", 60 * kMiB));
  allocator.create_pool(kPool);
  EXPECT_EQ(allocator.malloc(80 * kMiB, 0, kPool), nullptr);
  allocator.release_pool(kPool);
  allocator.empty_cache();
  EXPECT_FALSE(allocator.has_pool(kPool));
  EXPECT_EQ(show(allocator.layout()), "");
  EXPECT_NE(allocator.malloc(60 * kMiB), nullptr);
}

TEST(PrivatePools, AreForgottenWhenEmpty) {
  CachingAllocator allocator;
  allocator.create_pool(kPool);
  allocator.retain_pool(kPool);
  allocator.free(allocator.malloc(kMiB, 0, kPool));
  allocator.release_pool(kPool);
  allocator.empty_cache();
  EXPECT_TRUE(allocator.has_pool(kPool)) << "used twice";
  EXPECT_EQ(allocator.reserved_bytes(), 2 * kMiB);
  allocator.release_pool(kPool);
  EXPECT_FALSE(allocator.is_pool_used(kPool));
  allocator.empty_cache();
  EXPECT_FALSE(allocator.has_pool(kPool));
  EXPECT_EQ(allocator.reserved_bytes(), 0);
}

}  // namespace
}  // namespace tidegauge
