// SPDX-License-Identifier: BSD-3-Clause
// Any recording of an allocator: one that the allocator made is replayed without a difference; one
// with changed events, segments or settings is replayed or rejected.
#include "allocator/recording.h"

#include <vector>

#include "allocator/recorded_run.h"
#include "allocator/trace_replay.h"
#include "input.h"

namespace tidegauge::fuzz {
namespace {

constexpr size_t kMostActions = 500;
constexpr const char* kSettings[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:40",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
    "large_segment_size_mb:32",
};

AllocatorOptions choose_options(Input& input) {
  AllocatorOptions options;
  options.config = parse_alloc_config(kSettings[input.below(std::ssize(kSettings))]);
  options.total_bytes = (200 + input.below(4000)) * kMiB;
  return options;
}

void record(Input& input, Recording& recording) {
  std::vector<Block*> blocks, pending;
  const auto take = [&input](std::vector<Block*>& from) {
    const auto index = static_cast<size_t>(input.below(std::ssize(from)));
    Block* block = from[index];
    from.erase(from.begin() + static_cast<ptrdiff_t>(index));
    return block;
  };
  for (size_t i = input.byte(); i < kMostActions && !input.is_empty(); ++i) {
    const uint8_t action = input.byte();
    if (action == 1) {
      // See trace_replay.h: a replay could not tell these releases from others.
      const AllocConfig& config = recording.allocator().options().config;
      if (config.max_split_bytes == kNoLimit && config.garbage_collection_threshold == 0 &&
          !config.expandable_segments) {
        recording.allocator().empty_cache();
      }
    } else if (action % 8 == 5 && !pending.empty()) {
      recording.complete_free(take(pending));
    } else if (action % 8 == 3 && !blocks.empty()) {
      recording.allocator().record_stream(blocks[static_cast<size_t>(action) % blocks.size()], 7);
    } else if (action % 2 == 1 && !blocks.empty()) {
      Block* block = take(blocks);
      if (block->has_other_streams) pending.push_back(block);
      recording.free(block);
    } else {
      const int64_t size_bytes = 1 + input.below(int64_t{1} << (9 + action / 2 % 19));
      if (Block* block = recording.malloc(size_bytes, action % 4 / 2)) blocks.push_back(block);
    }
  }
}

/// May overflow, as a number in a file may have any value.
int64_t change_number(Input& input, int64_t number) {
  const auto bits = static_cast<uint64_t>(number);
  switch (input.byte() % 5) {
    case 0:
      return static_cast<int64_t>(bits + 512 * (uint64_t{input.byte()} - 128));
    case 1:
      return static_cast<int64_t>(-bits);
    case 2:
      return input.take<int64_t>();
    case 3:
      return int64_t{1} << (input.byte() % 63);
    default:
      return static_cast<int64_t>(bits * 2);
  }
}

void change(Input& input, DeviceTrace& trace) {
  if (!trace.events.empty()) {
    TraceEvent& event = trace.events[static_cast<size_t>(input.below(std::ssize(trace.events)))];
    switch (input.byte() % 6) {
      case 0:
        event.action = static_cast<TraceAction>(input.byte() % kTraceActionCount);
        break;
      case 1:
        event.address = change_number(input, event.address);
        break;
      case 2:
        event.size_bytes = change_number(input, event.size_bytes);
        break;
      case 3:
        event.stream = change_number(input, event.stream);
        break;
      case 4:
        event.pool.first = change_number(input, event.pool.first);
        break;
      default:
        trace.events.push_back(event);
    }
  }
  if (input.one_in(2) || trace.final_layout.empty()) return;
  Layout& layout = trace.final_layout;
  SegmentState& segment = layout[static_cast<size_t>(input.below(std::ssize(layout)))];
  switch (input.byte() % 6) {
    case 0:
      segment.address = change_number(input, segment.address);
      break;
    case 1:
      segment.size_bytes = change_number(input, segment.size_bytes);
      break;
    case 2:
      segment.stream = change_number(input, segment.stream);
      break;
    case 3:
      segment.is_expandable = !segment.is_expandable;
      break;
    case 4:
      segment.is_small = !segment.is_small;
      break;
    default:
      if (segment.blocks.empty()) break;
      BlockState& block = segment.blocks[static_cast<size_t>(input.byte()) % segment.blocks.size()];
      (input.one_in(2) ? block.size_bytes : block.requested_bytes) =
          change_number(input, block.size_bytes);
  }
}

void replay(const DeviceTrace& trace, const AllocatorOptions& options, bool is_changed) {
  const RewoundTrace rewound = rewind_trace(trace, options.config);
  const RecordedRun followed = follow_recording(rewound, options.config);
  const ReplayOptions replayed{.config = options.config, .total_bytes = options.total_bytes};
  const ReplayResult result = replay_trace(rewound, trace.final_layout, replayed);
  replay_fresh(rewound, {.config = parse_alloc_config("expandable_segments:True")});
  if (is_changed) return;
  if (result.divergence) fail(result.divergence->what);
  if (followed.final_layout != trace.final_layout) fail("another final layout");
}

}  // namespace
}  // namespace tidegauge::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidegauge;
  fuzz::Input input(data, size);
  const AllocatorOptions options = fuzz::choose_options(input);
  const int changes = input.byte() % 4;
  // The changes come first, so that a longer life does not move them.
  const std::string_view chosen = input.text(64);
  fuzz::Input changes_input(reinterpret_cast<const uint8_t*>(chosen.data()), chosen.size());
  Recording recording(options);
  fuzz::record(input, recording);
  DeviceTrace trace = recording.trace();
  for (int i = 0; i < changes; ++i) fuzz::change(changes_input, trace);
  const auto replay = [&] { fuzz::replay(trace, options, changes > 0); };
  if (changes > 0) {
    fuzz::expect_clean_errors(replay);
  } else {
    replay();
  }
  return 0;
}
