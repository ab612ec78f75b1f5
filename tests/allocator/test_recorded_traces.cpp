// SPDX-License-Identifier: BSD-3-Clause
// Compares the simulator with recordings of real allocators: every address, segment and layout.
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "allocator/recorded_run.h"
#include "allocator/trace_replay.h"
#include "allocator/trace_rewind.h"
#include "recorded_traces.h"

namespace tidegauge {
namespace {

/// All recorded traces come from torch before 2.12, and from runs without allocator settings.
ReplayOptions as_recorded() { return {.config = {}, .tie = TieRule::Address}; }

class RecordedTraces : public testing::Test {
 protected:
  void SetUp() override {
    names_ = recorded_trace_names();
    if (!names_.empty()) return;
    ASSERT_FALSE(must_have_recorded_traces()) << no_recorded_traces();
    GTEST_SKIP() << no_recorded_traces();
  }

  std::vector<std::string> names_;
};

int64_t active_bytes(const Layout& layout) {
  int64_t sum = 0;
  for (const SegmentState& segment : layout) {
    for (const BlockState& block : segment.blocks) {
      if (block.use != BlockUse::Free) sum += block.size_bytes;
    }
  }
  return sum;
}

TEST_F(RecordedTraces, RewindingFindsTheRecordedStart) {
  for (const std::string& name : names_) {
    SCOPED_TRACE(name);
    const TextTrace text = read_recorded_trace(name);
    const RewoundTrace rewound = rewind_trace(text.trace, AllocConfig{});
    ASSERT_EQ(rewound.initial_layout.size(), text.initial_layout.size());
    for (size_t i = 0; i < text.initial_layout.size(); ++i) {
      EXPECT_EQ(rewound.initial_layout[i], text.initial_layout[i])
          << text.initial_layout[i].address;
    }
  }
}

TEST_F(RecordedTraces, FollowingTheAddressesEndsInTheRecordedLayout) {
  for (const std::string& name : names_) {
    SCOPED_TRACE(name);
    const TextTrace text = read_recorded_trace(name);
    const RewoundTrace rewound = rewind_trace(text.trace, AllocConfig{});
    const RecordedRun run = follow_recording(rewound, AllocConfig{});
    EXPECT_TRUE(run.final_layout == text.trace.final_layout);
    EXPECT_EQ(run.figures.final_reserved_bytes, text.final_reserved_bytes);
    EXPECT_EQ(run.figures.final_active_bytes, text.final_active_bytes);
    EXPECT_EQ(active_bytes(run.final_layout), text.final_active_bytes);
  }
}

TEST_F(RecordedTraces, SimulationEqualsTheRecording) {
  size_t allocations = 0;
  for (const std::string& name : names_) {
    SCOPED_TRACE(name);
    const TextTrace text = read_recorded_trace(name);
    const RewoundTrace rewound = rewind_trace(text.trace, AllocConfig{});
    const RecordedRun recorded = follow_recording(rewound, AllocConfig{});
    const ReplayResult simulated = replay_trace(rewound, text.trace.final_layout, as_recorded());
    if (simulated.divergence) {
      ADD_FAILURE() << "at event " << simulated.divergence->event << " of " << rewound.events.size()
                    << ": " << simulated.divergence->what;
    }
    EXPECT_TRUE(simulated.final_layout == text.trace.final_layout);
    EXPECT_EQ(simulated.figures, recorded.figures);
    for (const TraceEvent& event : rewound.events) {
      allocations += event.action == TraceAction::Alloc ? 1 : 0;
    }
  }
  RecordProperty("allocations", static_cast<int>(allocations));
  EXPECT_GT(allocations, 0u);
}

// Otherwise the test above would not prove the rule.
TEST_F(RecordedTraces, TieRuleOfLaterTorchDiverges) {
  size_t diverging = 0;
  for (const std::string& name : names_) {
    const TextTrace text = read_recorded_trace(name);
    const RewoundTrace rewound = rewind_trace(text.trace, AllocConfig{});
    const ReplayResult simulated = replay_trace(rewound, text.trace.final_layout,
                                                {.config = {}, .tie = TieRule::SegmentCounter});
    diverging += simulated.divergence.has_value() ? 1 : 0;
  }
  EXPECT_GT(diverging, 0u);
}

}  // namespace
}  // namespace tidegauge
