// SPDX-License-Identifier: BSD-3-Clause
// Compares every moment of a timeline with a ledger that keeps its whole history.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analyze/timeline.h"
#include "core/events/event_factory.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

constexpr events::Origin kMain{1, ThreadId(1), kCpu};

std::vector<DeviceTimeline> timelines_of(const std::vector<Event>& events, uint64_t max_moments) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  record(path, events);
  Reader reader(path);
  return read_timelines(reader, {.max_moments = max_moments});
}

using Alive = std::set<std::tuple<StorageId, int64_t, Category>>;

/// The live storages after every event, corrected when a label comes late.
class Memory {
 public:
  explicit Memory(const std::vector<Event>& events) : states_(1) {
    for (const Event& event : events) {
      const uint64_t refused = ledger_.anomalies().total();
      ledger_.apply(event);
      auto& state = states_.emplace_back();
      ledger_.visit_storages([&](StorageId id, const StorageInfo& info) { state[id] = info; });
      const bool is_late =
          event.kind == EventKind::StorageClaimed ||
          (event.kind == EventKind::StorageRelabelled && event.since == Since::Birth);
      if (is_late && ledger_.anomalies().total() == refused) rewrite(event.storage);
    }
  }

  Alive alive_at(uint64_t sequence, Device device) const {
    Alive alive;
    for (const auto& [id, info] : states_[sequence]) {
      if (info.device == device && info.size_bytes != 0) {
        alive.emplace(id, info.size_bytes, info.category);
      }
    }
    return alive;
  }
  size_t event_count() const { return states_.size() - 1; }
  Ledger& ledger() { return ledger_; }

 private:
  void rewrite(StorageId storage) {
    const Category category = states_.back().at(storage).category;
    for (auto state = states_.rbegin(); state->contains(storage); ++state) {
      state->at(storage).category = category;  // the state before the first event ends it
    }
  }

  Ledger ledger_;
  std::vector<std::map<StorageId, StorageInfo>> states_;  // by sequence number
};

Alive alive_at(const DeviceTimeline& timeline, size_t moment) {
  Alive alive;
  for (const TimelinePiece& piece : timeline.pieces) {
    if (piece.first > moment || piece.end <= moment) continue;
    const bool is_new = alive.emplace(piece.storage, piece.size_bytes, piece.category).second;
    EXPECT_TRUE(is_new) << "a storage occurs twice";
  }
  return alive;
}

CategorySplit split_at(const DeviceTimeline& timeline, size_t moment) {
  CategorySplit split;
  for (const auto& [id, size_bytes, category] : alive_at(timeline, moment)) {
    split[category] += size_bytes;
  }
  return split;
}

const DeviceTimeline* find(const std::vector<DeviceTimeline>& timelines, Device device) {
  const auto found = std::find_if(timelines.begin(), timelines.end(),
                                  [&](const auto& each) { return each.device == device; });
  return found == timelines.end() ? nullptr : &*found;
}

void expect_moment(const std::vector<DeviceTimeline>& timelines, const DeviceSplit& peak) {
  const DeviceTimeline* timeline = find(timelines, peak.device);
  ASSERT_NE(timeline, nullptr);
  const auto& sequences = timeline->sequences;
  const auto found = std::lower_bound(sequences.begin(), sequences.end(), peak.at.sequence);
  ASSERT_TRUE(found != sequences.end() && *found == peak.at.sequence)
      << "event " << peak.at.sequence << " is not a moment of " << to_string(peak.device);
  EXPECT_EQ(split_at(*timeline, static_cast<size_t>(found - sequences.begin())), peak.split);
}

TEST(Timeline, EveryMomentHasTheLiveStorages) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {  // every third one is hostile
    const std::vector<Event> events = random_events(seed, 400);
    const Memory memory(events);
    for (const uint64_t max_moments : {1u << 20, 40u}) {
      for (const DeviceTimeline& timeline : timelines_of(events, max_moments)) {
        ASSERT_EQ(timeline.times_ns.size(), timeline.sequences.size());
        for (size_t i = 0; i < timeline.sequences.size(); ++i) {
          ASSERT_EQ(alive_at(timeline, i), memory.alive_at(timeline.sequences[i], timeline.device))
              << "seed " << seed << ", moment " << i;
        }
      }
    }
  }
}

TEST(Timeline, WithEnoughMomentsEveryChangeIsIncluded) {
  const std::vector<Event> events = random_events(1, 600);
  const Memory memory(events);
  for (const DeviceTimeline& timeline : timelines_of(events, 1 << 20)) {
    const std::set<uint64_t> moments(timeline.sequences.begin(), timeline.sequences.end());
    for (uint64_t i = 1; i <= memory.event_count(); ++i) {
      if (memory.alive_at(i, timeline.device) != memory.alive_at(i - 1, timeline.device)) {
        ASSERT_TRUE(moments.contains(i)) << "event " << i;
      }
    }
  }
}

TEST(Timeline, PeaksOfTheRunAndOfStepsAreAlwaysIncluded) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const std::vector<Event> events = random_events(seed, 800);
    Ledger ledger = apply_all(events);
    for (const uint64_t max_moments : {1u << 20, 50u, 1u}) {
      const std::vector<DeviceTimeline> timelines = timelines_of(events, max_moments);
      for (const DeviceSplit& peak : ledger.peak().devices) expect_moment(timelines, peak);
      for (const StepPeak& step : ledger.step_peaks()) {
        for (const DeviceSplit& peak : step.bytes.devices) expect_moment(timelines, peak);
      }
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", room for " << max_moments;
    }
  }
}

TEST(Timeline, NumberOfMomentsIsLimitedAndInvisiblePiecesAreDropped) {
  std::vector<Event> events;
  for (uint64_t i = 1; i <= 5000; ++i) {
    events.push_back(events::storage_born(kMain, StorageId(i), static_cast<int64_t>(i % 50 + 1)));
    events.push_back(events::storage_freed(kMain, StorageId(i)));
  }
  const DeviceTimeline timeline = timelines_of(events, 100).at(0);
  EXPECT_EQ(timeline.sequences.size(), 100);
  EXPECT_EQ(timeline.pieces.size(), 100);  // the largest of each fifty
  for (const TimelinePiece& piece : timeline.pieces) EXPECT_EQ(piece.size_bytes, 50);
}

TEST(Timeline, ContextsHaveStepAndRunningModule) {
  const DeviceTimeline timeline =
      timelines_of(
          {
              events::storage_born(kMain, StorageId(1), 8),               // moment 0
              events::step_marker(kMain),                                 // 1
              events::module_enter(kMain, ModuleId(7), Phase::Forward),   //
              events::storage_born(kMain, StorageId(2), 8),               // 2
              events::module_enter(kMain, ModuleId(8), Phase::Backward),  //
              events::storage_born(kMain, StorageId(3), 8),               // 3
              events::module_exit(kMain, ModuleId(8), Phase::Backward),   //
              events::module_exit(kMain, ModuleId(7), Phase::Forward),    //
              events::optimizer_step_begin(kMain),                        //
              events::storage_freed(kMain, StorageId(3)),                 // 4
              events::storage_freed(kMain, StorageId(2)),                 // 5
          },
          100)
          .at(0);
  const std::vector<TimelineContext> expected = {
      {.first = 0, .step = 0, .activity = Activity::None, .module = {}},
      {.first = 1, .step = 1, .activity = Activity::None, .module = {}},
      {.first = 2, .step = 1, .activity = Activity::Forward, .module = ModuleId(7)},
      {.first = 3, .step = 1, .activity = Activity::Backward, .module = ModuleId(8)},
      {.first = 4, .step = 1, .activity = Activity::Optimizer, .module = {}},
  };
  EXPECT_EQ(timeline.contexts, expected);
}

TEST(Timeline, LabelsSinceBirthDescribeAllPieces) {
  Event owned = events::storage_relabelled(kMain, StorageId(1), Role::IsParameter, Since::Birth);
  owned.module = ModuleId(5);
  const DeviceTimeline timeline =
      timelines_of(
          {
              events::storage_born(kMain, StorageId(1), 8, 0, OpId(3)),
              events::storage_resized(kMain, StorageId(1), 16),
              owned,
              events::storage_relabelled(kMain, StorageId(1), Role::IsBuffer, Since::Now),
          },
          100)
          .at(0);
  ASSERT_EQ(timeline.pieces.size(), 3);
  const auto expect = [&](size_t i, int64_t size_bytes, Category category) {
    EXPECT_EQ(timeline.pieces[i].size_bytes, size_bytes);
    EXPECT_EQ(timeline.pieces[i].category, category);
    EXPECT_EQ(timeline.pieces[i].module, ModuleId(5));
    EXPECT_EQ(timeline.pieces[i].op, OpId(3));
  };
  expect(0, 8, Category::Parameter);
  expect(1, 16, Category::Parameter);
  expect(2, 16, Category::Buffer);
}

TEST(Timeline, EmptyTraceHasNoTimeline) { EXPECT_TRUE(timelines_of({}, 100).empty()); }

TEST(Timeline, ProgressFunctionCanStopIt) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  record(path, random_events(1, 300'000));
  Reader reader(path);
  double last = 0;
  read_timelines(reader, {}, [&](double share) {
    EXPECT_GT(share, last);
    last = share;
  });
  EXPECT_GT(last, 0.5);
  const auto stop = [](double) { throw std::runtime_error("stop"); };
  EXPECT_THROW(read_timelines(reader, {}, stop), std::runtime_error);
}

}  // namespace
}  // namespace tidegauge
