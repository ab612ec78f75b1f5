// SPDX-License-Identifier: BSD-3-Clause
// A run answers all questions together in two passes; each answer equals that of the analysis
// alone.
#include <gtest/gtest.h>

#include <memory>

#include "analyze/run.h"
#include "core/events/event_factory.h"
#include "trace/memory_trace.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

constexpr UnitId kUnit{1};

/// Events in memory, some of which belong to a unit of sharded parameters.
std::shared_ptr<MemoryTrace> make_trace(const std::vector<Event>& events, bool is_sharded) {
  auto trace = std::make_shared<MemoryTrace>();
  if (is_sharded) trace->name_unit(kUnit, "block");
  for (size_t i = 0; i < events.size(); ++i) {
    trace->record(events[i], nullptr, {});
    if (is_sharded && i % 5 == 0) {
      trace->record_unit({.storage = events[i].storage, .unit = kUnit});
    }
  }
  return trace;
}

/// Counts how often its events are read.
class CountedTrace : public MemoryTrace {
 public:
  void visit_batches(uint64_t last, const VisitBatch& visit) override {
    ++passes;
    MemoryTrace::visit_batches(last, visit);
  }
  void visit_events(uint64_t first, uint64_t last, const VisitEvent& visit) override {
    ++passes;
    MemoryTrace::visit_events(first, last, visit);
  }
  int passes = 0;
};

TEST(Run, AnswersEqualThoseOfEachAnalysisAlone) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {  // every third stream is hostile
    const auto trace = make_trace(random_events(seed, 2000), true);
    const tidegauge::Run run(trace, {.timeline = TimelineOptions{.max_moments = 300}});
    ASSERT_EQ(run.summary(), summarize(*trace));
    ASSERT_EQ(run.units(), summarize_units(*trace));
    ASSERT_EQ(run.timelines(), read_timelines(*trace, {.max_moments = 300}));
  }
}

TEST(Run, FileAndMemoryGiveTheSameAnswers) {
  const Folder folder;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const auto trace = make_trace(random_events(seed, 2000), true);
    const std::string path = folder.file("run.tide");
    trace->save(path, true);
    const tidegauge::Run saved(std::make_shared<Reader>(path), {.timeline = TimelineOptions{}});
    const tidegauge::Run kept(trace, {.timeline = TimelineOptions{}});
    ASSERT_EQ(saved.summary(), kept.summary());
    ASSERT_EQ(saved.units(), kept.units());
    ASSERT_EQ(saved.timelines(), kept.timelines());
    ASSERT_EQ(saved.unit_lanes(), kept.unit_lanes());
  }
}

TEST(Run, MakesTwoPassesForAnyQuestions) {
  for (const bool is_sharded : {false, true}) {
    CountedTrace trace;
    for (const Event& event : random_events(1, 500)) {
      trace.record(event, nullptr, {});
      if (is_sharded) trace.record_unit({.storage = event.storage, .unit = kUnit});
    }
    const std::shared_ptr<EventSource> source(&trace, [](EventSource*) {});
    const tidegauge::Run run(source, {.timeline = TimelineOptions{}});
    EXPECT_EQ(trace.passes, 2);
    EXPECT_EQ(run.units().empty(), !is_sharded);
  }
}

TEST(Run, ReadsFileInTwoPasses) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  record(path, random_events(2, 20'000));
  const auto reader = std::make_shared<Reader>(path);
  const tidegauge::Run run(reader, {.timeline = TimelineOptions{}});
  EXPECT_EQ(reader->pass_count(), 2U);
  EXPECT_EQ(run.summary().event_count, 20'000U);
}

TEST(Analyze, MakesOnePassIfNoAnalysisNeedsTwo) {
  CountedTrace trace;
  trace.record(events::storage_born({}, StorageId(1), 8), nullptr, {});
  trace.record_unit({.storage = StorageId(1), .unit = kUnit});
  summarize_units(trace);
  EXPECT_EQ(trace.passes, 1);
}

}  // namespace
}  // namespace tidegauge
