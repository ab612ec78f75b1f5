// SPDX-License-Identifier: BSD-3-Clause
// A trace in memory gives the same answers as the file that a Recorder writes for the same run.
#include <gtest/gtest.h>

#include <array>

#include "analyze/summary.h"
#include "analyze/unit_summary.h"
#include "trace/memory_trace.h"
#include "trace_files.h"

namespace tidegauge {
namespace {

constexpr UnitId kUnit{3};

/// One step with names, a unit and labels since birth, then random events.
void run(EventSink& sink) {
  const events::Origin origin{5, ThreadId(1), kCpu};
  const std::array<int64_t, 2> shape = {2, 3};
  const TensorFacts tensor{"float32", shape};
  sink.name_module(ModuleId(4), "Net", "my.Net");
  sink.name_module(ModuleId(4), "Outer.net", "");
  sink.name_op(OpId(7), "aten::mm");
  sink.name_unit(kUnit, "layers.0");
  sink.count_optimizer_step("SGD");
  sink.record(events::step_marker(origin), nullptr, {});
  sink.record(events::storage_born(origin, StorageId(9), 24, 0, OpId(7)), &tensor, {});
  sink.record_unit({.time_ns = 5, .unit = kUnit, .kind = UnitEventKind::GatherBegun});
  sink.record_unit({.storage = StorageId(9), .unit = kUnit, .kind = UnitEventKind::StorageOwned});
  sink.record(events::storage_relabelled(origin, StorageId(9), Role::IsGradient, Since::Birth),
              nullptr, {});
  for (const Event& event : random_events(1, 500)) sink.record(event, nullptr, {});
}

void expect_equal(EventSource& memory, Reader& file) {
  EXPECT_EQ(memory.event_count(), file.event_count());
  std::vector<trace::CodedEvent> ours, theirs;
  memory.visit_trace_events(1, UINT64_MAX, [&](const auto& event, uint64_t sequence) {
    ours.push_back(event);
    EXPECT_EQ(sequence, ours.size());
  });
  file.visit_trace_events(1, UINT64_MAX,
                          [&](const auto& event, uint64_t) { theirs.push_back(event); });
  EXPECT_EQ(ours, theirs);
  EXPECT_EQ(memory.ops(), file.ops());
  EXPECT_EQ(memory.units(), file.units());
  ASSERT_EQ(memory.modules().size(), 1);
  EXPECT_EQ(memory.modules()[0].name, "Outer.net");
  EXPECT_EQ(memory.modules()[0].class_name, file.modules()[0].class_name);
  ASSERT_EQ(memory.tensors().size(), file.tensors().size());
  EXPECT_EQ(memory.tensors().at(1).shape, file.tensors().at(1).shape);
  const auto our_units = memory.unit_events();
  const auto their_units = file.unit_events();
  ASSERT_EQ(our_units.size(), their_units.size());
  for (size_t i = 0; i < our_units.size(); ++i) {
    EXPECT_EQ(our_units[i].sequence, their_units[i].sequence);
    EXPECT_EQ(our_units[i].event, their_units[i].event);
  }
}

TEST(MemoryTrace, HasTheEventsAndNamesThatARecorderWrites) {
  const Folder folder;
  MemoryTrace memory(std::map<std::string, std::string>{{"rank", "2"}});
  run(memory);
  {
    Recorder recorder(folder.file("run.tide"));
    run(recorder);
  }
  Reader file(folder.file("run.tide"));
  expect_equal(memory, file);
  EXPECT_EQ(memory.run_facts().at("rank"), "2");
  EXPECT_EQ(memory.run_facts().at("pid"), file.run_facts().at("pid"));
  EXPECT_TRUE(memory.is_complete());
  EXPECT_EQ(memory.lost_events(), 0);
}

TEST(MemoryTrace, HasTheSameSummaryAsAFile) {
  const Folder folder;
  MemoryTrace memory;
  run(memory);
  {
    Recorder recorder(folder.file("run.tide"));
    run(recorder);
  }
  Reader file(folder.file("run.tide"));
  const TraceSummary ours = summarize(memory), theirs = summarize(file);
  ASSERT_EQ(ours.peaks.size(), theirs.peaks.size());
  for (size_t i = 0; i < ours.peaks.size(); ++i) {
    EXPECT_EQ(ours.peaks[i].split, theirs.peaks[i].split);
    EXPECT_EQ(ours.peaks[i].groups.size(), theirs.peaks[i].groups.size());
  }
  const auto our_units = summarize_units(memory), their_units = summarize_units(file);
  ASSERT_EQ(our_units.size(), 1);
  EXPECT_EQ(our_units[0].at_peak, their_units[0].at_peak);
  EXPECT_EQ(our_units[0].gather_count, their_units[0].gather_count);
}

TEST(MemoryTrace, IsSavedAsATraceFile) {
  const Folder folder;
  MemoryTrace memory(std::map<std::string, std::string>{{"rank", "2"}});
  run(memory);
  memory.save(folder.file("run.tide"), false);
  Reader file(folder.file("run.tide"));
  expect_equal(memory, file);
  EXPECT_TRUE(file.is_complete());
  EXPECT_EQ(file.run_facts().at("rank"), "2");
  EXPECT_EQ(file.run_facts().at("started_ns"), memory.run_facts().at("started_ns"));
  EXPECT_EQ(file.optimizer_steps().at("SGD"), 1);
  EXPECT_TRUE(
      contains(error_of<IoError>([&] { memory.save(folder.file("run.tide"), false); }), "exists"));
  memory.save(folder.file("run.tide"), true);
}

TEST(MemoryTrace, VisitsOnlyTheRequestedEvents) {
  MemoryTrace memory;
  run(memory);
  std::vector<uint64_t> sequences;
  memory.visit_events(2, 4,
                      [&](const Event&, uint64_t sequence) { sequences.push_back(sequence); });
  EXPECT_EQ(sequences, (std::vector<uint64_t>{2, 3, 4}));
}

}  // namespace
}  // namespace tidegauge
