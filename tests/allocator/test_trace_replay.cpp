// SPDX-License-Identifier: BSD-3-Clause
// Rewinds, follows and replays recordings made by the simulator itself, so that every kind of event
// and setting occurs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>
#include <string>

#include "allocator/recorded_run.h"
#include "allocator/trace_replay.h"
#include "allocator/trace_rewind.h"
#include "allocator/trace_text.h"
#include "layout_checks.h"
#include "recording.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

AllocatorOptions with(const std::string& settings) {
  AllocatorOptions options;
  options.config = parse_alloc_config(settings);
  options.tie = TieRule::Address;
  return options;
}

ReplayResult replay(const DeviceTrace& trace, const AllocatorOptions& options) {
  const RewoundTrace rewound = rewind_trace(trace, options.config);
  return replay_trace(
      rewound, trace.final_layout,
      {.config = options.config, .tie = options.tie, .total_bytes = options.total_bytes});
}

std::string divergence(const ReplayResult& result) {
  if (!result.divergence) return "none";
  return std::to_string(result.divergence->event) + ": " + result.divergence->what;
}

/// The message of the FormatError.
std::string complaint(const std::function<void()>& action) {
  try {
    action();
  } catch (const FormatError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TraceReplay, TruncatedTraceStartsWithTheLiveBlocks) {
  Recording recording(with(""));
  Block* early = recording.malloc(30 * kMiB);
  recording.malloc(2 * kMiB);
  const std::string at_cut = show(recording.allocator().layout());
  const size_t cut = recording.events().size();
  recording.free(early);
  recording.malloc(28 * kMiB);
  recording.malloc(3 * kMiB);
  const DeviceTrace trace = recording.trace(cut);
  EXPECT_EQ(show(rewind_trace(trace, {}).initial_layout), at_cut);
  EXPECT_EQ(divergence(replay(trace, with(""))), "none");
}

/// 20 MiB split into 8, 3 and 2; a request for 2.5 gets the block of 3 and keeps all of it.
struct BlockWithSlack {
  explicit BlockWithSlack(Recording& recording) {
    recording.malloc(8 * kMiB);
    Block* middle = recording.malloc(3 * kMiB);
    after = recording.malloc(2 * kMiB);
    recording.free(middle);
    slack = recording.malloc(2 * kMiB + kMiB / 2);
  }
  Block* slack;
  Block* after;
};

TEST(TraceReplay, SlackOfAnEarlierBlockEndsAtTheNextOne) {
  Recording recording(with(""));
  const BlockWithSlack blocks(recording);
  const size_t cut = recording.events().size();
  recording.free(blocks.slack);
  EXPECT_EQ(show(rewind_trace(recording.trace(cut), {}).initial_layout), "[8M* 3M* 2M* 7M]");
}

TEST(TraceReplay, SlackOfAnEarlierBlockEndsWhereALaterOneIsPlaced) {
  Recording recording(with(""));
  const BlockWithSlack blocks(recording);
  recording.free(blocks.after);
  const size_t cut = recording.events().size();
  Block* placed = recording.malloc(4 * kMiB);
  recording.free(blocks.slack);
  EXPECT_EQ(show(rewind_trace(recording.trace(cut), {}).initial_layout), "[8M* 3M* 9M]");
  recording.free(placed);
  EXPECT_EQ(divergence(replay(recording.trace(cut), with(""))), "none");
}

TEST(TraceReplay, SlackOfAnEarlierBlockIsZeroWithoutEvidence) {
  Recording recording(with(""));
  const BlockWithSlack blocks(recording);
  recording.free(blocks.after);
  const size_t cut = recording.events().size();
  recording.free(blocks.slack);
  EXPECT_EQ(show(rewind_trace(recording.trace(cut), {}).initial_layout), "[8M* 2621440* 9961472]");
}

TEST(TraceReplay, EmptyingTheCacheIsReplayed) {
  Recording recording(with(""));
  recording.malloc(2 * kMiB);
  recording.free(recording.malloc(30 * kMiB));
  recording.free(recording.malloc(50 * kMiB));
  recording.allocator().empty_cache();
  recording.malloc(40 * kMiB);
  const ReplayResult result = replay(recording.trace(), with(""));
  EXPECT_EQ(divergence(result), "none");
  EXPECT_EQ(result.figures.segment_events, 6);
  EXPECT_EQ(result.figures.peak_reserved_bytes, 100 * kMiB);
  EXPECT_EQ(result.figures.final_reserved_bytes, 60 * kMiB);
}

TEST(TraceReplay, FiguresOfAPeak) {
  Recording recording(with(""));
  recording.free(recording.malloc(30 * kMiB));
  recording.malloc(11 * kMiB + 1);  // of the 30
  recording.malloc(23 * kMiB);      // a segment of 24, all of it
  const DeviceTrace trace = recording.trace();
  const RewoundTrace rewound = rewind_trace(trace, {});
  const RunFigures figures = follow_recording(rewound, {}).figures;
  EXPECT_EQ(figures.peak_reserved_bytes, 54 * kMiB);
  EXPECT_EQ(figures.peak_active_bytes, 35 * kMiB + 512);
  EXPECT_EQ(figures.unused_at_peak_bytes, 19 * kMiB - 512);
  EXPECT_EQ(figures.slack_at_peak_bytes, 511 + kMiB);
  EXPECT_EQ(figures.segments, 2);
  EXPECT_EQ(replay(trace, with("")).figures, figures);
}

TEST(TraceReplay, OtherSettingsOnTheSameRequests) {
  Recording recording(with(""));
  recording.free(recording.malloc(30 * kMiB));
  recording.free(recording.malloc(50 * kMiB));
  recording.malloc(70 * kMiB);
  const RewoundTrace rewound = rewind_trace(recording.trace(), {});
  const auto reserved_mib = [&](const std::string& settings) {
    ReplayOptions options;
    options.config = parse_alloc_config(settings);
    return replay_fresh(rewound, options).figures.peak_reserved_bytes / kMiB;
  };
  EXPECT_EQ(reserved_mib(""), 150);
  EXPECT_EQ(reserved_mib("expandable_segments:True"), 80);
}

TEST(TraceReplay, FreshStartContainsOnlyLiveBlocks) {
  Recording recording(with(""));
  recording.free(recording.malloc(100 * kMiB));
  Block* block = recording.malloc(2 * kMiB, 3);
  const size_t cut = recording.events().size();
  recording.free(block);
  const RewoundTrace rewound = rewind_trace(recording.trace(cut), {});
  EXPECT_EQ(replay_fresh(rewound, {}).figures.peak_reserved_bytes, 20 * kMiB);
  EXPECT_EQ(follow_recording(rewound, {}).figures.peak_reserved_bytes, 120 * kMiB);
}

TEST(TraceReplay, DeferredFreesAreCompletedAsRecorded) {
  Recording recording(with(""));
  Block* block = recording.malloc(30 * kMiB);
  recording.allocator().record_stream(block, 5);
  recording.free(block);
  recording.malloc(30 * kMiB);
  recording.complete_free(block);
  recording.malloc(30 * kMiB);
  const DeviceTrace trace = recording.trace();
  EXPECT_EQ(divergence(replay(trace, with(""))), "none");
  const RewoundTrace rewound = rewind_trace(trace, {});
  const auto reserved_mib = [&](DeferredFrees policy) {
    return replay_fresh(rewound, {.config = {}, .deferred = policy}).figures.peak_reserved_bytes /
           kMiB;
  };
  EXPECT_EQ(reserved_mib(DeferredFrees::ByCaller), 60);
  EXPECT_EQ(reserved_mib(DeferredFrees::AtNextMalloc), 60);
  EXPECT_EQ(reserved_mib(DeferredFrees::AtSync), 90);
}

TEST(TraceReplay, BlockThatWaitsAtTheStartIsFreedInTheTrace) {
  Recording recording(with(""));
  Block* block = recording.malloc(30 * kMiB);
  recording.allocator().record_stream(block, 5);
  recording.free(block);
  const size_t cut = recording.events().size();
  recording.complete_free(block);
  recording.malloc(30 * kMiB);
  const DeviceTrace trace = recording.trace(cut);
  const RewoundTrace rewound = rewind_trace(trace, {});
  EXPECT_EQ(show(rewound.initial_layout), "[30M?]");
  EXPECT_EQ(divergence(replay(trace, with(""))), "none");
  for (const DeferredFrees policy :
       {DeferredFrees::ByCaller, DeferredFrees::AtNextMalloc, DeferredFrees::AtSync}) {
    EXPECT_GE(replay_fresh(rewound, {.config = {}, .deferred = policy}).figures.peak_reserved_bytes,
              30 * kMiB);
  }
}

TEST(TraceReplay, WithKnownDeviceMemoryReleasesAreSimulated) {
  AllocatorOptions options = with("max_split_size_mb:40");
  options.total_bytes = 200 * kMiB;
  Recording recording(options);
  Block* blocks[] = {recording.malloc(50 * kMiB), recording.malloc(70 * kMiB),
                     recording.malloc(30 * kMiB)};
  for (Block* block : blocks) recording.free(block);
  recording.malloc(92 * kMiB);   // releases the 70 and the 50, but not the 30
  recording.malloc(150 * kMiB);  // out of memory: releases the 30
  EXPECT_EQ(divergence(replay(recording.trace(), options)), "none");
  options.total_bytes = kNoLimit;
  EXPECT_NE(divergence(replay(recording.trace(), options)), "none")
      << "treated as an emptied cache, which would have released the 30 too";
}

TEST(TraceReplay, CacheThatIsEmptiedBeforeANewSegmentIsNotMemoryThatRanOut) {
  for (const char* settings :
       {"", "expandable_segments:True", "max_split_size_mb:40",
        "garbage_collection_threshold:0.5,per_process_memory_fraction:0.8"}) {
    SCOPED_TRACE(settings);
    AllocatorOptions options = with(settings);
    options.total_bytes = 200 * kMiB;
    Recording recording(options);
    recording.free(recording.malloc(30 * kMiB));
    recording.allocator().empty_cache();
    recording.malloc(40 * kMiB);
    recording.free(recording.malloc(120 * kMiB));
    recording.allocator().empty_cache();
    recording.malloc(120 * kMiB);  // the emptied cache had a block for it
    EXPECT_EQ(divergence(replay(recording.trace(), options)), "none");
  }
}

TEST(TraceReplay, PoolOfABlockIsFoundFromItsSegment) {
  Recording recording(with(""));
  recording.allocator().create_pool({0, 1});
  recording.malloc(30 * kMiB, 0, {0, 1});
  recording.free(recording.malloc(40 * kMiB, 0, {0, 1}));
  recording.malloc(35 * kMiB);
  DeviceTrace trace = recording.trace();
  EXPECT_EQ(divergence(replay(trace, with(""))), "none");
  for (TraceEvent& event : trace.events) {
    if (!is_segment_action(event.action)) event.pool = {};  // as before torch 2.12
  }
  EXPECT_EQ(divergence(replay(trace, with(""))), "none");
  recording.allocator().release_pool({0, 1});
  recording.allocator().empty_cache();
  EXPECT_EQ(divergence(replay(recording.trace(), with(""))), "none");
}

TEST(TraceReplay, AnotherTieRuleDiverges) {
  AllocatorOptions options = with("");
  int64_t next = int64_t{1} << 40;
  options.place = [&](int64_t, bool) { return next -= 100 * kMiB; };
  Recording recording(options);
  Block* a = recording.malloc(30 * kMiB);
  Block* b = recording.malloc(30 * kMiB);
  recording.free(a);
  recording.free(b);
  const size_t event = recording.events().size();
  Block* taken = recording.malloc(30 * kMiB);
  AllocatorOptions other = options;
  other.tie = TieRule::SegmentCounter;
  EXPECT_EQ(divergence(replay(recording.trace(), options)), "none");
  EXPECT_EQ(divergence(replay(recording.trace(), other)),
            std::to_string(event) + ": recorded alloc of 31457280 bytes at " +
                std::to_string(taken->address) + ", simulated at " +
                std::to_string(taken->address + 100 * kMiB));
}

TEST(TraceReplay, OtherSettingsDiverge) {
  Recording recording(with("large_segment_size_mb:32"));
  recording.malloc(2 * kMiB);
  EXPECT_EQ(divergence(replay(recording.trace(), with("large_segment_size_mb:32"))), "none");
  EXPECT_EQ(divergence(replay(recording.trace(), with(""))),
            "1: recorded segment_alloc of 33554432 bytes at 1073741824, "
            "simulated segment_alloc of 20971520 bytes at 1073741824");
}

TEST(TraceReplay, AnotherFinalLayoutDiverges) {
  Recording recording(with(""));
  recording.malloc(30 * kMiB);
  DeviceTrace trace = recording.trace();
  trace.final_layout[0].blocks[0].requested_bytes -= 1;
  EXPECT_EQ(divergence(replay(trace, with(""))),
            "2: the segment at address 1073741824 has another final layout");
  EXPECT_FALSE(follow_recording(rewind_trace(trace, {}), {}).final_layout == trace.final_layout);
}

TEST(TraceReplay, ContradictionNamesTheEvent) {
  Recording recording(with(""));
  Block* block = recording.malloc(30 * kMiB);
  recording.free(block);
  const DeviceTrace sound = recording.trace();  // A a r c
  const auto spoiled = [&](const std::function<void(DeviceTrace&)>& spoil) {
    DeviceTrace trace = sound;
    spoil(trace);
    return complaint([&] { follow_recording(rewind_trace(trace, {}), {}); });
  };
  EXPECT_EQ(spoiled([](DeviceTrace&) {}), "accepted");
  EXPECT_EQ(
      spoiled([](DeviceTrace& trace) { trace.events.erase(trace.events.begin() + 1); }),
      "event 0 (segment_alloc of 31457280 bytes at address 1073741824) contradicts later events: "
      "another block exists at this address before");
  EXPECT_EQ(
      spoiled([](DeviceTrace& trace) { trace.events.pop_back(); }),
      "event 2 (free_requested of 31457280 bytes at address 1073741824) contradicts later events: "
      "the block does not exist");
  EXPECT_EQ(
      spoiled([](DeviceTrace& trace) { trace.events[3].address += 512; }),
      "event 2 (free_requested of 31457280 bytes at address 1073741824) contradicts later events: "
      "the block does not exist");
  EXPECT_EQ(
      spoiled([](DeviceTrace& trace) { trace.events[0].size_bytes /= 2; }),
      "event 0 (segment_alloc of 15728640 bytes at address 1073741824) contradicts later events: "
      "the segment does not exist afterwards");
  EXPECT_EQ(
      spoiled([](DeviceTrace& trace) { trace.final_layout.clear(); }),
      "event 3 (free_completed of 31457280 bytes at address 1073741824) contradicts later events: "
      "there is no segment at this address");
  EXPECT_EQ(spoiled([](DeviceTrace& trace) { trace.events[1].size_bytes = -1; }),
            "event 1 (alloc of -1 bytes at address 1073741824) contradicts later events: invalid "
            "address or size");
}

TEST(TraceReplay, ImpossibleLayoutsAreRefused) {
  Recording recording(with(""));
  recording.malloc(2 * kMiB);
  recording.malloc(30 * kMiB);
  const Layout sound = recording.allocator().layout();
  const auto spoiled = [&](const std::function<void(Layout&)>& spoil) {
    Layout layout = sound;
    spoil(layout);
    return complaint([&] { check_layout(layout); });
  };
  const std::string first = "the segment at address 1073741824 of 20971520 bytes ";
  EXPECT_EQ(spoiled([](Layout&) {}), "accepted");
  EXPECT_EQ(spoiled([](Layout& layout) { layout[0].blocks.pop_back(); }),
            first + "is not filled by its blocks");
  EXPECT_EQ(spoiled([](Layout& layout) { layout[0].blocks[1].size_bytes += 512; }),
            first + "has blocks with gaps or overlaps");
  EXPECT_EQ(spoiled([](Layout& layout) { layout[0].blocks[1].address += 512; }),
            first + "has blocks with gaps or overlaps");
  EXPECT_EQ(spoiled([](Layout& layout) { layout[0].blocks[0].use = BlockUse::Free; }),
            first + "has free blocks that were not merged");
  EXPECT_EQ(spoiled([](Layout& layout) { layout[0].blocks[0].requested_bytes = -1; }),
            first + "has a block of negative size");
  EXPECT_EQ(spoiled([](Layout& layout) { std::swap(layout[0], layout[1]); }),
            first + "overlaps the previous one");
  EXPECT_EQ(spoiled([](Layout& layout) { layout[1].address = kNoLimit - 1; }),
            "the segment at address 9223372036854775806 of 31457280 bytes has an invalid address "
            "or size");
}

/// A random run with all kinds of events.
void run_at_random(Recording& recording, std::mt19937_64& random, int steps) {
  const auto below = [&](int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(random);
  };
  std::vector<Block*> live;
  std::vector<Block*> waiting;
  const auto take = [&](std::vector<Block*>& blocks) {
    std::swap(blocks[static_cast<size_t>(below(std::ssize(blocks)))], blocks.back());
    Block* block = blocks.back();
    blocks.pop_back();
    return block;
  };
  for (int step = 0; step < steps; ++step) {
    if (below(50) == 0) {
      while (!waiting.empty()) recording.complete_free(take(waiting));
      recording.allocator().empty_cache();
    } else if (!waiting.empty() && below(6) == 0) {
      recording.complete_free(take(waiting));
    } else if (below(60) < std::ssize(live)) {
      Block* block = take(live);
      if (below(5) == 0) {
        recording.allocator().record_stream(block, 99);
        waiting.push_back(block);
      }
      recording.free(block);
    } else {
      const int64_t size_bytes = 1 + below(int64_t{1} << (9 + below(17)));
      if (Block* block = recording.malloc(size_bytes, below(2))) live.push_back(block);
    }
  }
}

TEST(TraceReplay, ReplayOfACompleteRecordingEqualsIt) {
  const char* is_long = std::getenv("TIDEGAUGE_LONG");
  const uint64_t runs = is_long != nullptr && std::string(is_long) == "1" ? 2000 : 60;
  for (const char* settings : {"", "expandable_segments:True", "max_split_size_mb:40",
                               "expandable_segments:True,large_segment_size_mb:12",
                               "roundup_power2_divisions:[1:4,>:2]"}) {
    for (uint64_t seed = 0; seed < runs; ++seed) {
      SCOPED_TRACE(std::string(settings) + " seed " + std::to_string(seed));
      std::mt19937_64 random(seed);
      AllocatorOptions options = with(settings);
      options.tie = seed % 2 == 0 ? TieRule::Address : TieRule::SegmentCounter;
      Recording recording(options);
      run_at_random(recording, random, 300);
      const DeviceTrace trace = recording.trace();
      const RewoundTrace rewound = rewind_trace(trace, options.config);
      ASSERT_EQ(show(rewound.initial_layout), "");
      const RecordedRun recorded = follow_recording(rewound, options.config);
      ASSERT_TRUE(recorded.final_layout == trace.final_layout);
      const ReplayResult result = replay(trace, options);
      ASSERT_EQ(divergence(result), "none");
      ASSERT_EQ(result.figures, recorded.figures);
    }
  }
}

// The ranges of a real device are much smaller than those that we assume without its size.
TEST(TraceReplay, RangesOfExpandableSegmentsAreTakenFromTheRecording) {
  size_t failures = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    AllocatorOptions options = with("expandable_segments:True");
    options.total_bytes = 160 * kMiB;
    Recording recording(options);
    run_at_random(recording, random, 200);
    const size_t cut = recording.events().size();
    run_at_random(recording, random, 200);
    for (const TraceEvent& event : recording.events()) {
      failures += event.action == TraceAction::OutOfMemory ? 1 : 0;
    }
    for (const size_t first : {size_t{0}, cut}) {
      options.total_bytes = 160 * kMiB;
      const std::string with_size = divergence(replay(recording.trace(first), options));
      options.total_bytes = kNoLimit;
      ASSERT_EQ(divergence(replay(recording.trace(first), options)), with_size);
      if (first == 0) {
        ASSERT_EQ(with_size, "none");
      }
    }
  }
  EXPECT_GT(failures, 0u);
}

TEST(TraceReplay, RewindingATruncatedRecordingFindsItsStart) {
  size_t exact = 0;
  size_t runs = 0;
  for (const char* settings : {"", "expandable_segments:True"}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(std::string(settings) + " seed " + std::to_string(seed));
      std::mt19937_64 random(seed);
      const AllocatorOptions options = with(settings);
      Recording recording(options);
      run_at_random(recording, random, 200);
      const Layout start = recording.allocator().layout();
      const size_t cut = recording.events().size();
      run_at_random(recording, random, 200);
      const RewoundTrace rewound = rewind_trace(recording.trace(cut), options.config);
      ++runs;
      exact += rewound.initial_layout == start ? 1 : 0;
      // Only the border between a block and the free block after it may differ.
      ASSERT_EQ(rewound.initial_layout.size(), start.size());
      for (size_t i = 0; i < start.size(); ++i) {
        ASSERT_EQ(rewound.initial_layout[i].address, start[i].address);
        ASSERT_EQ(rewound.initial_layout[i].size_bytes, start[i].size_bytes);
        ASSERT_EQ(rewound.initial_layout[i].is_small, start[i].is_small);
        ASSERT_EQ(rewound.initial_layout[i].blocks.size(), start[i].blocks.size());
      }
    }
  }
  EXPECT_GE(exact * 10, runs * 9) << exact << " of " << runs;
}

TEST(TraceText, ReadsWhatItDescribes) {
  std::istringstream text(
      "# comment\nS 1000000 2097152 0 small\nB 1000000 1024 1000\na 1001024 512 0\n"
      "r 1000000 1000 0\nc 1000000 1000 0\nX 0 5 0\nE 2097152 512\ns 1000000 2097152 0 small\n"
      "b 1000000 1024 1000 inactive\nb 1001024 512 512 active_allocated\n"
      "b 1001536 2095616 0 inactive\n");
  const TextTrace trace = read_text_trace(text);
  EXPECT_EQ(show(trace.initial_layout), "[1024* 2096128]");
  EXPECT_EQ(show(trace.trace.final_layout), "[1024 512* 2095616]");
  EXPECT_EQ(trace.trace.events.size(), 4u);
  EXPECT_EQ(trace.final_active_bytes, 512);
  EXPECT_EQ(divergence(replay(trace.trace, with(""))), "none");
}

TEST(TraceText, InvalidLineIsReported) {
  for (const char* line :
       {"q 1 2 3", "a 1 2", "aa 1 2 3", "S 1 2 3 medium", "b 1 2 3 inactive", "a one 2 3", "E 1"}) {
    std::istringstream text("# first\n" + std::string(line) + "\n");
    EXPECT_EQ(complaint([&] { read_text_trace(text); }),
              "line 2 of the trace is invalid: '" + std::string(line) + "'");
  }
  std::istringstream outside("B 1 2 3\n");
  EXPECT_EQ(complaint([&] { read_text_trace(outside); }),
            "the block of 2 bytes at address 1 does not fit into its segment");
}

}  // namespace
}  // namespace tidegauge
