// SPDX-License-Identifier: BSD-3-Clause
// The public reader gives the figures of the Ledger, with names.
#include <gtest/gtest.h>

#include "analyze/summary.h"
#include "core/events/event_factory.h"
#include "tidegauge/reader.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

constexpr events::Origin kMain{1'000, ThreadId(1), cuda(0)};

/// Two steps of a model with one sharded unit.
void record_training(const std::string& path) {
  RecorderOptions options;
  options.facts = {{"world_size", "2"}, {"started_ns", "400"}};
  Recorder recorder(path, options);
  recorder.name_module(ModuleId(1), "Net", "Net");
  recorder.name_module(ModuleId(2), "Net.fc", "Linear");
  recorder.name_op(OpId(3), "aten::mm");
  recorder.name_unit(UnitId(1), "fc");
  const auto add = [&](const Event& event) { recorder.record(event, nullptr, {}); };
  add(events::storage_born(kMain, StorageId(1), 100));
  add(events::storage_relabelled(kMain, StorageId(1), Role::IsShardedParam, Since::Birth));
  recorder.record_unit({.time_ns = 1, .storage = StorageId(1), .unit = UnitId(1)});
  for (int step = 1; step <= 2; ++step) {
    add(events::step_marker(kMain));
    add(events::module_enter(kMain, ModuleId(1), Phase::Forward));
    add(events::module_enter(kMain, ModuleId(2), Phase::Forward));
    const std::vector<int64_t> shape{4, 2};
    const TensorFacts tensor{"float32", shape};
    recorder.record(events::storage_born(kMain, StorageId(2), step * 10, 0, OpId(3)), &tensor, {});
    add(events::module_exit(kMain, ModuleId(2), Phase::Forward));
    add(events::module_exit(kMain, ModuleId(1), Phase::Forward));
    add(events::storage_freed(kMain, StorageId(2)));
  }
}

TEST(TraceFile, SummarizesPeaksWithNames) {
  const Folder folder;
  record_training(folder.file("run.tide"));
  TraceFile trace(folder.file("run.tide"));
  EXPECT_EQ(trace.facts().at("world_size"), "2");
  const RunSummary& summary = trace.summary();
  EXPECT_TRUE(summary.is_complete);
  EXPECT_EQ(summary.step_count, 2);
  EXPECT_EQ(summary.duration_ns, 600);
  ASSERT_EQ(summary.peaks.size(), 1U);
  const PeakSummary& peak = summary.peaks[0];
  EXPECT_EQ(peak.device, "cuda:0");
  EXPECT_EQ(peak.bytes.total_bytes(), 120);
  EXPECT_EQ(peak.bytes[Category::ShardedParam], 100);
  EXPECT_EQ(peak.after_ns, 600);
  EXPECT_EQ(peak.step, 2);
  ASSERT_EQ(peak.running.size(), 2U);
  EXPECT_EQ(peak.running[1].name, "Net.fc");
  EXPECT_EQ(peak.running[1].phase, "forward");
  ASSERT_EQ(peak.groups.size(), 2U);
  EXPECT_EQ(peak.groups[0].module, "Net.fc");  // it owns the parameter
  EXPECT_EQ(peak.groups[1].module, "Net.fc");
  EXPECT_EQ(peak.groups[1].op, "aten::mm");
  EXPECT_EQ(peak.groups[1].dtype, "float32");
  EXPECT_EQ(peak.groups[1].shape, "[4, 2]");
  EXPECT_EQ(peak.groups[1].size_bytes, 20);
  ASSERT_EQ(peak.units.size(), 1U);
  EXPECT_EQ(peak.units[0].name, "fc");
  EXPECT_EQ(peak.units[0].bytes.total_bytes(), 100);
  ASSERT_EQ(summary.steps.size(), 2U);
  EXPECT_EQ(summary.steps[0].bytes.total_bytes(), 110);
}

TEST(TraceFile, TimelineHasTheBytesOfTheLedgerAtEveryMoment) {
  const Folder folder;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const std::vector<Event> events = random_events(seed, 1500);
    const std::string path = folder.file(std::to_string(seed) + ".tide");
    record(path, events);
    TraceFile trace(path, {.max_moments = 100});
    Reader reader(path);
    for (const MemoryTimeline& timeline : trace.timelines()) {
      ASSERT_FALSE(timeline.moments.empty());
      for (const MemoryTimeline::Moment& moment : timeline.moments) {
        Ledger ledger;
        reader.replay(ledger, moment.sequence);
        int64_t expected = 0;
        for (const DeviceSplit& each : ledger.current().devices) {
          if (to_string(each.device) == timeline.device) expected = each.split.total();
        }
        ASSERT_EQ(moment.bytes.total_bytes(), expected) << "seed " << seed;
        ASSERT_EQ(moment.step, ledger.now().step);
      }
    }
  }
}

TEST(TraceFile, ForeignFileIsAFormatError) {
  const Folder folder;
  write_file(folder.file("text.tide"), "no trace");
  EXPECT_THROW(TraceFile(folder.file("text.tide")), FormatError);
  EXPECT_THROW(TraceFile(folder.file("missing.tide")), IoError);
}

}  // namespace
}  // namespace tidegauge
