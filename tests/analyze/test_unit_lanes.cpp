// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "analyze/unit_lanes.h"
#include "core/events/event_factory.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

constexpr UnitId kUnit{1};
constexpr UnitId kOther{2};

TEST(UnitLanes, ListsOnlyChangesOfStateInOrder) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  {
    Recorder recorder(path);
    const auto record = [&](UnitId unit, UnitEventKind kind, int64_t time_ns) {
      recorder.record_unit({.time_ns = time_ns, .unit = unit, .kind = kind});
    };
    record(kUnit, UnitEventKind::GatherBegun, 10);
    record(kUnit, UnitEventKind::GatherBegun, 11);  // already gathering
    recorder.record(events::storage_born({12, ThreadId(1), kCpu}, StorageId(1), 8), nullptr, {});
    record(kUnit, UnitEventKind::GatherFinished, 13);
    record(kOther, UnitEventKind::GatherBegun, 12);  // the clock of another thread
    record(kUnit, UnitEventKind::ReleasedToPostForwardShard, 14);
    record(kUnit, UnitEventKind::Reduced, 15);
    record(kUnit, UnitEventKind::Released, 16);
  }
  Reader reader(path);
  const std::vector<LaneChange> expected = {
      {kUnit, 0, 10, UnitState::Gathering},  {kUnit, 1, 13, UnitState::Unsharded},
      {kOther, 1, 13, UnitState::Gathering}, {kUnit, 1, 14, UnitState::PostForwardSharded},
      {kUnit, 1, 15, std::nullopt},          {kUnit, 1, 16, UnitState::Sharded},
  };
  EXPECT_EQ(make_unit_lanes(reader.unit_events()), expected);
}

}  // namespace
}  // namespace tidegauge
