// SPDX-License-Identifier: BSD-3-Clause
// The simulated caching allocator: requests per second, their cost with many free blocks, and
// memory.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/trace_rewind.h"
#include "counting_new.h"
#include "recorded_traces.h"

namespace tidegauge {
namespace {

/// Identifies blocks by slots, so that only the allocator's own time is measured.
struct Op {
  int64_t size_bytes;  // 0: free
  int64_t stream;
  uint32_t slot;
};

/// A list of allocations and frees that can be repeated, because no block is live at its end.
class OpList {
 public:
  void alloc(int64_t address, int64_t size_bytes, int64_t stream) {
    const auto slot = static_cast<uint32_t>(slot_count_++);
    slots_[address] = slot;
    ops_.push_back({std::max<int64_t>(size_bytes, 1), stream, slot});
  }
  void free(int64_t address) {
    const auto slot = slots_.extract(address);
    ops_.push_back({0, 0, slot.mapped()});
  }
  void free_all() {
    while (!slots_.empty()) free(slots_.begin()->first);
  }

  const std::vector<Op>& ops() const { return ops_; }
  size_t slot_count() const { return slot_count_; }

 private:
  std::vector<Op> ops_;
  std::unordered_map<int64_t, uint32_t> slots_;
  size_t slot_count_ = 0;
};

void append(OpList& list, const DeviceTrace& trace) {
  const RewoundTrace rewound = rewind_trace(trace, {});
  for (const SegmentState& segment : rewound.initial_layout) {
    for (const BlockState& block : segment.blocks) {
      if (block.use != BlockUse::Free) {
        list.alloc(block.address, block.requested_bytes, segment.stream);
      }
    }
  }
  for (const TraceEvent& event : rewound.events) {
    if (event.action == TraceAction::Alloc) {
      list.alloc(event.address, event.size_bytes, event.stream);
    } else if (event.action == TraceAction::FreeCompleted) {
      list.free(event.address);
    }
  }
  list.free_all();
}

/// Used without recorded traces: steps that keep activations until a backward frees them.
void append_synthetic(OpList& list) {
  std::mt19937_64 random(1);  // NOLINT(bugprone-random-generator-seed): the same in every run
  for (int64_t step = 0; step < 4; ++step) {
    for (int64_t layer = 0; layer < 600; ++layer) {
      list.alloc(layer * 2, int64_t{4096} << (random() % 14), 0);
      list.alloc(layer * 2 + 1, int64_t{1024} << (random() % 16), 0);
      if (layer % 3 == 0) list.free(layer * 2 + 1);
    }
    for (int64_t layer = 599; layer >= 0; --layer) {
      if (layer % 3 != 0) list.free(layer * 2 + 1);
      list.free(layer * 2);
    }
  }
}

void replay_requests(benchmark::State& state) {
  AllocatorOptions options;
  options.config.expandable_segments = state.range(0) != 0;
  OpList list;
  const std::vector<std::string> names = recorded_trace_names();
  for (const std::string& name : names) append(list, read_recorded_trace(name).trace);
  if (names.empty()) append_synthetic(list);
  CachingAllocator allocator(options);
  std::vector<Block*> blocks(list.slot_count());
  for (auto _ : state) {
    for (const Op& op : list.ops()) {
      if (op.size_bytes != 0) {
        blocks[op.slot] = allocator.malloc(op.size_bytes, op.stream);
      } else {
        allocator.free(blocks[op.slot]);
      }
    }
  }
  state.SetLabel(names.empty() ? "synthetic" : "recorded");
  state.counters["is_expandable"] = static_cast<double>(state.range(0));
  state.counters["requests_per_second"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(list.ops().size()),
      benchmark::Counter::kIsRate);
}
BENCHMARK(replay_requests)->ArgName("expandable")->Arg(0)->Arg(1);

/// Allocates and frees among many free blocks of different sizes.
void search_free_blocks(benchmark::State& state) {
  const int64_t free_blocks = state.range(0);
  CachingAllocator allocator;
  std::vector<Block*> kept;
  kept.reserve(static_cast<size_t>(2 * free_blocks));
  std::mt19937_64 random(1);  // NOLINT(bugprone-random-generator-seed): the same in every run
  const auto any_size = [&] { return static_cast<int64_t>(1 + random() % 2000) * 512; };
  for (int64_t i = 0; i < 2 * free_blocks; ++i) kept.push_back(allocator.malloc(any_size()));
  for (size_t i = 0; i < kept.size(); i += 2) allocator.free(kept[i]);
  for (auto _ : state) allocator.free(allocator.malloc(any_size()));
  state.counters["free_blocks"] = static_cast<double>(free_blocks);
  state.counters["seconds_per_request"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 2,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(search_free_blocks)->ArgName("free_blocks")->Arg(1'000)->Arg(100'000);

/// Peak heap memory per live block; `spaced` frees every other block, so that each live block has a
/// free neighbour.
void hold_blocks(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  const bool is_spaced = state.range(1) != 0;
  std::vector<Block*> blocks;
  blocks.reserve(2 * count);
  for (auto _ : state) {
    blocks.clear();
    const size_t before = heap::live_bytes();
    heap::restart_peak();
    CachingAllocator allocator;
    for (size_t i = 0; i < (is_spaced ? 2 * count : count); ++i) {
      blocks.push_back(allocator.malloc(512));
    }
    for (size_t i = 0; is_spaced && i < blocks.size(); i += 2) allocator.free(blocks[i]);
    state.counters["bytes_per_block"] =
        static_cast<double>(heap::peak_bytes() - before) / static_cast<double>(count);
  }
  state.counters["live_blocks"] = static_cast<double>(count);
}
BENCHMARK(hold_blocks)
    ->ArgNames({"blocks", "spaced"})
    ->ArgsProduct({{10'000, 1'000'000}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidegauge
