// SPDX-License-Identifier: BSD-3-Clause
// Random requests: compared with the naive allocator where that implements the rules, and checked
// for invariants everywhere. TIDEGAUGE_LONG=1 runs many more.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "allocator/caching_allocator.h"
#include "layout_checks.h"
#include "naive_allocator.h"

namespace tidegauge {
namespace {

uint64_t run_count(uint64_t plain) {
  const char* is_long = std::getenv("TIDEGAUGE_LONG");
  return is_long != nullptr && std::string(is_long) == "1" ? plain * 50 : plain;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  int64_t below(int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(engine_);
  }
  bool one_in(int64_t n) { return below(n) == 0; }

  /// A few sizes are frequent, so that blocks of equal size compete and limits of rules are hit.
  int64_t size() {
    static constexpr int64_t kBorders[] = {512,       kMiB,      kMiB + 512, 2 * kMiB,
                                           9 * kMiB,  10 * kMiB, 19 * kMiB,  20 * kMiB,
                                           39 * kMiB, 40 * kMiB, 41 * kMiB,  60 * kMiB};
    if (one_in(2)) {
      const int64_t border = kBorders[static_cast<size_t>(below(std::ssize(kBorders)))];
      return std::max<int64_t>(1, border + (below(3) - 1) * 512);
    }
    return 1 + below(int64_t{1} << (9 + below(17)));
  }

 private:
  std::mt19937_64 engine_;
};

template <typename Value>
Value take(std::vector<Value>& values, Random& random) {
  const auto index = static_cast<size_t>(random.below(std::ssize(values)));
  const Value value = values[index];
  values[index] = values.back();
  values.pop_back();
  return value;
}

TEST(AllocatorRandom, EqualsNaiveAllocator) {
  for (uint64_t seed = 0; seed < run_count(60); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    AllocatorOptions options;
    options.config = parse_alloc_config(random.one_in(2) ? "max_split_size_mb:40" : "");
    options.tie = random.one_in(2) ? TieRule::Address : TieRule::SegmentCounter;
    options.total_bytes = random.one_in(2) ? kNoLimit : (200 + random.below(200)) * kMiB;
    CachingAllocator allocator(options);
    NaiveAllocator naive(options.config, options.tie, options.total_bytes);
    std::vector<Block*> live;
    const int64_t streams = 1 + random.below(2);
    const int64_t keep = 5 + random.below(40);
    for (int step = 0; step < 400; ++step) {
      if (random.one_in(60)) {
        allocator.empty_cache();
        naive.empty_cache();
      } else if (random.below(2 * keep) < std::ssize(live)) {
        Block* block = take(live, random);
        naive.free(block->address);
        allocator.free(block);
      } else {
        const int64_t size_bytes = random.size();
        const int64_t stream = random.below(streams);
        Block* block = allocator.malloc(size_bytes, stream);
        const int64_t address = naive.malloc(size_bytes, stream);
        ASSERT_EQ(block != nullptr ? block->address : kNoAddress, address) << "step " << step;
        if (block != nullptr) live.push_back(block);
      }
      ASSERT_EQ(allocator.reserved_bytes(), naive.reserved_bytes()) << "step " << step;
    }
    ASSERT_EQ(show(allocator.layout()), show(naive.layout()));
    ASSERT_TRUE(allocator.layout() == naive.layout());
    check_invariants(allocator);
  }
}

constexpr const char* kSettings[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:40",
    "expandable_segments:True,max_split_size_mb:40",
    "roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:[1:8,16:2,>:4]",
    "garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
    "garbage_collection_threshold:0.3,per_process_memory_fraction:0.9,max_split_size_mb:40",
    "large_segment_size_mb:32",
    "expandable_segments:True,large_segment_size_mb:11",
    "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.7",
};

/// One random life of an allocator that calls all of its functions.
class Life {
 public:
  explicit Life(uint64_t seed) : random_(seed), allocator_(options()) {}

  void run() {
    for (int step = 0; step < 300; ++step) {
      act();
      if (step % 16 == 0) check_invariants(allocator_);
      if (testing::Test::HasFatalFailure()) return;
    }
    end();
  }

 private:
  AllocatorOptions options() {
    AllocatorOptions options;
    options.config =
        parse_alloc_config(kSettings[static_cast<size_t>(random_.below(std::ssize(kSettings)))]);
    options.tie = random_.one_in(2) ? TieRule::Address : TieRule::SegmentCounter;
    options.deferred = random_.one_in(2) ? DeferredFrees::AtSync : DeferredFrees::AtNextMalloc;
    options.total_bytes = (200 + random_.below(2000)) * kMiB;
    options.outside_bytes = random_.below(20) * kMiB;
    options.on_segment_event = [this](const TraceEvent& event) {
      events_bytes_ += adds_memory(event.action) ? event.size_bytes : -event.size_bytes;
    };
    return options;
  }

  void act() {
    switch (random_.below(24)) {
      case 0:
        if (!is_capturing_) allocator_.empty_cache();
        break;
      case 1:
        allocator_.synchronize_host();
        break;
      case 2:
        if (!live_.empty()) allocator_.record_stream(any_live(), random_.below(4));
        break;
      case 3:
        is_capturing_ ? allocator_.end_capture() : allocator_.begin_capture();
        is_capturing_ = !is_capturing_;
        break;
      case 4:
        toggle_pool();
        break;
      case 5:
        if (random_.one_in(8)) switch_expandable();
        break;
      default:
        if (random_.below(60) < std::ssize(live_)) {
          allocator_.free(take(live_, random_));
        } else if (Block* block = allocator_.malloc(random_.size(), random_.below(3), any_pool())) {
          live_.push_back(block);
        }
    }
    ASSERT_EQ(allocator_.reserved_bytes(), events_bytes_);
    ASSERT_LE(allocator_.reserved_bytes(),
              allocator_.options().total_bytes - allocator_.options().outside_bytes);
  }

  Block* any_live() { return live_[static_cast<size_t>(random_.below(std::ssize(live_)))]; }

  PoolId any_pool() {
    const PoolId pool{0, 1 + random_.below(2)};
    return allocator_.is_pool_used(pool) && random_.one_in(2) ? pool : PoolId{};
  }

  void toggle_pool() {
    const PoolId pool{0, 1 + random_.below(2)};
    if (!allocator_.has_pool(pool)) {
      allocator_.create_pool(pool, {random_.one_in(4), random_.one_in(2)});
    } else if (allocator_.is_pool_used(pool)) {
      allocator_.release_pool(pool);
    } else {
      allocator_.retain_pool(pool);
    }
  }

  void switch_expandable() {
    AllocConfig config = allocator_.options().config;
    config.expandable_segments = !config.expandable_segments;
    allocator_.set_config(config);
  }

  /// After all blocks are freed and the cache is emptied, no memory is left.
  void end() {
    if (is_capturing_) allocator_.end_capture();
    for (Block* block : live_) allocator_.free(block);
    for (const int64_t second : {1, 2}) {
      while (allocator_.is_pool_used({0, second})) allocator_.release_pool({0, second});
    }
    allocator_.empty_cache();
    EXPECT_EQ(show(allocator_.layout()), "");
    check_invariants(allocator_);
    EXPECT_EQ(allocator_.reserved_bytes(), 0);
    EXPECT_EQ(allocator_.stats().active_bytes.all().current, 0);
    EXPECT_EQ(allocator_.stats().oversize_allocations.current, 0);
    EXPECT_EQ(allocator_.stats().oversize_segments.current, 0);
    EXPECT_FALSE(allocator_.has_pool({0, 1}));
  }

  Random random_;
  int64_t events_bytes_ = 0;
  CachingAllocator allocator_;
  std::vector<Block*> live_;
  bool is_capturing_ = false;
};

TEST(AllocatorRandom, InvariantsHoldInRandomLives) {
  for (uint64_t seed = 0; seed < run_count(200); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Life(seed).run();
    if (HasFailure()) return;
  }
}

TEST(AllocatorRandom, AdoptedLayoutContinuesLikeTheOriginal) {
  for (uint64_t seed = 0; seed < run_count(40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    AllocatorOptions options;
    options.config = parse_alloc_config(kSettings[static_cast<size_t>(random.below(4))]);
    options.tie = TieRule::Address;  // a layout does not contain segment counters
    options.total_bytes = int64_t{1} << 40;
    CachingAllocator first(options);
    std::vector<Block*> live;
    const auto step = [&](CachingAllocator& allocator, std::vector<Block*>& blocks,
                          Random& chance) {
      if (chance.below(60) < std::ssize(blocks)) {
        allocator.free(take(blocks, chance));
      } else {
        blocks.push_back(allocator.malloc(chance.size(), 0));
      }
    };
    for (int i = 0; i < 200; ++i) step(first, live, random);
    CachingAllocator second(options);
    std::vector<Block*> adopted = second.adopt(first.layout());
    std::sort(live.begin(), live.end(), ByAddress{});
    std::sort(adopted.begin(), adopted.end(), ByAddress{});
    ASSERT_EQ(adopted.size(), live.size());
    Random same = random;
    for (int i = 0; i < 200; ++i) {
      step(first, live, random);
      step(second, adopted, same);
    }
    ASSERT_EQ(show(second.layout()), show(first.layout()));
    check_invariants(second);
  }
}

}  // namespace
}  // namespace tidegauge
