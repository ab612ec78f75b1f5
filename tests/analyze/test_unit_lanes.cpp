// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "analyze/unit_lanes.h"
#include "core/events/event_factory.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

constexpr UnitId kUnit{1};
constexpr UnitId kOther{2};

TEST(UnitLanes, StatesInOrderWithoutWhatMakesNoDifference) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  {
    Recorder recorder(path);
    const auto tell = [&](UnitId unit, UnitEventKind kind, int64_t time_ns) {
      recorder.record_unit({.time_ns = time_ns, .unit = unit, .kind = kind});
    };
    tell(kUnit, UnitEventKind::GatherBegun, 10);
    tell(kUnit, UnitEventKind::GatherBegun, 11);  // it is on its way already
    recorder.record(events::storage_born({12, ThreadId(1), kCpu}, StorageId(1), 8), nullptr, {});
    tell(kUnit, UnitEventKind::GatherFinished, 13);
    tell(kOther, UnitEventKind::GatherBegun, 12);  // a clock of another thread
    tell(kUnit, UnitEventKind::ReleasedToPostForwardShard, 14);
    tell(kUnit, UnitEventKind::Reduced, 15);
    tell(kUnit, UnitEventKind::Released, 16);
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
