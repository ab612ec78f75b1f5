// SPDX-License-Identifier: BSD-3-Clause
// A summary has the figures of the Ledger, and the owners of the bytes.
#include <gtest/gtest.h>

#include "analyze/summary.h"
#include "core/events/event_factory.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

constexpr events::Origin kMain{1, ThreadId(1), kCpu};

Event owned(uint64_t storage, Role role, uint32_t owner) {
  Event event = events::storage_relabelled(kMain, StorageId(storage), role, Since::Birth);
  event.module = ModuleId(owner);
  return event;
}

TraceSummary summary_of(const std::vector<Event>& events) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  record(path, events);
  Reader reader(path);
  return summarize(reader);
}

CategorySplit add_up(const std::vector<StorageGroup>& groups) {
  CategorySplit split;
  for (const StorageGroup& group : groups) split[group.category] += group.size_bytes;
  return split;
}

TEST(TraceSummary, GroupsAddUpToThePeakOfTheLedgerToTheByte) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {  // every third one is hostile
    const std::vector<Event> events = random_events(seed, 2000);
    Ledger ledger = apply_all(events);
    const Snapshot peak = ledger.peak();
    const TraceSummary summary = summary_of(events);
    ASSERT_EQ(summary.peaks.size(), peak.devices.size());
    for (size_t i = 0; i < peak.devices.size(); ++i) {
      ASSERT_EQ(summary.peaks[i].device, peak.devices[i].device);
      ASSERT_EQ(summary.peaks[i].at, peak.devices[i].at);
      ASSERT_EQ(summary.peaks[i].split, peak.devices[i].split);
      ASSERT_EQ(add_up(summary.peaks[i].groups), peak.devices[i].split) << "seed " << seed;
    }
    ASSERT_EQ(summary.end.devices, ledger.current().devices);
    ASSERT_EQ(summary.step_count, ledger.now().step);
  }
}

TEST(TraceSummary, BytesBelongToTheRunningModuleOrTheOwner) {
  const TraceSummary summary = summary_of({
      events::storage_born(kMain, StorageId(1), 100),
      owned(1, Role::IsParameter, 8),
      events::step_marker(kMain),
      events::module_enter(kMain, ModuleId(7), Phase::Forward),
      events::module_enter(kMain, ModuleId(8), Phase::Forward),
      events::storage_born(kMain, StorageId(2), 10),
      events::storage_born(kMain, StorageId(3), 10),  // the peak
      events::storage_relabelled(kMain, StorageId(2), Role::IsBuffer, Since::Now),
      events::module_exit(kMain, ModuleId(8), Phase::Forward),
      events::module_exit(kMain, ModuleId(7), Phase::Forward),
      events::storage_relabelled(kMain, StorageId(3), Role::IsSavedForBackward, Since::Birth),
      events::storage_freed(kMain, StorageId(3)),
      events::storage_freed(kMain, StorageId(2)),
  });
  ASSERT_EQ(summary.peaks.size(), 1);
  const DevicePeak& peak = summary.peaks[0];
  EXPECT_EQ(peak.at.sequence, 7);
  EXPECT_EQ(peak.at.step, 1);
  ASSERT_EQ(peak.running.size(), 2);
  EXPECT_EQ(peak.running[1].module, ModuleId(8));
  ASSERT_EQ(peak.groups.size(), 3);
  const auto expect = [&](size_t i, Category category, int64_t size_bytes) {
    EXPECT_EQ(peak.groups[i].category, category);
    EXPECT_EQ(peak.groups[i].module, ModuleId(8));
    EXPECT_EQ(peak.groups[i].count, 1);
    EXPECT_EQ(peak.groups[i].size_bytes, size_bytes);
  };
  expect(0, Category::Parameter, 100);
  expect(1, Category::Activation,
         10);  // a label from now on, after the peak, does not change the peak
  expect(2, Category::SavedActivation, 10);
  EXPECT_EQ(summary.storage_count, 3);
  EXPECT_EQ(summary.step_count, 1);
}

TEST(TraceSummary, EqualStoragesAreOneGroup) {
  std::vector<Event> events;
  for (uint64_t i = 1; i <= 5; ++i) {
    events.push_back(events::storage_born(kMain, StorageId(i), 4, 0, OpId(1)));
  }
  events.push_back(events::storage_born(kMain, StorageId(9), 4, 0, OpId(2)));
  const std::vector<StorageGroup> groups = summary_of(events).peaks.at(0).groups;
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].count, 5);
  EXPECT_EQ(groups[0].size_bytes, 20);
}

TEST(TraceSummary, TableOfStoragesHasTheOwner) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  record(path, {events::storage_born(kMain, StorageId(1), 100), owned(1, Role::IsParameter, 8)});
  Reader reader(path);
  EXPECT_EQ(reader.storages_alive_at(2, 1).at(0).module, ModuleId(8));
}

TEST(TraceSummary, EmptyTraceHasNoPeaks) { EXPECT_TRUE(summary_of({}).peaks.empty()); }

TEST(TraceSummary, ProgressFunctionCanStopIt) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  record(path, random_events(1, 300'000));
  Reader reader(path);
  double last = 0;
  summarize(reader, [&](double share) {
    EXPECT_GT(share, last);
    EXPECT_LE(share, 1.0);
    last = share;
  });
  EXPECT_GT(last, 0.5);
  EXPECT_THROW(summarize(reader, [](double) { throw std::runtime_error("stop"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace tidegauge
