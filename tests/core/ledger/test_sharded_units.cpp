// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "core/events/event_factory.h"
#include "core/ledger/labeller.h"
#include "core/ledger/ledger.h"
#include "core/ledger/sharded_units.h"

namespace tidegauge {
namespace {

constexpr UnitId kUnit{1};
constexpr UnitId kOther{2};
const Device kCpu{};

/// A program that does its own sharding: a ledger and the units get the same events.
class Program {
 public:
  explicit Program(size_t kept_changes = 16384) : units(kept_changes) {
    units.add(kUnit, "block");
    units.add(kOther, "head");
  }

  StorageId make(int64_t size_bytes) {
    const StorageId id{++last_};
    apply(events::storage_born({}, id, size_bytes));
    return id;
  }
  StorageId make(UnitId unit, UnitFact fact, int64_t size_bytes) {
    const StorageId id = make(size_bytes);
    apply(unit, fact, id);
    return id;
  }
  void apply(UnitId unit, UnitFact fact, StorageId id) {
    const auto label = ShardedUnits::decide(fact, ledger.find_storage(id)->category);
    units.apply({.storage = id, .unit = unit, .kind = UnitEventKind::StorageOwned}, ledger);
    if (label) apply(events::storage_relabelled({}, id, label->role, label->since));
  }
  bool apply(UnitId unit, UnitEventKind kind, int64_t time_ns, GatherReason reason = {}) {
    return units.apply({.time_ns = time_ns, .unit = unit, .kind = kind, .reason = reason}, ledger);
  }
  void resize(StorageId id, int64_t size_bytes) {
    apply(events::storage_resized({}, id, size_bytes));
  }
  void free(StorageId id) { apply(events::storage_freed({}, id)); }
  void apply(const Event& event) {
    ledger.apply(event);
    units.apply(event, ledger);
  }
  UnitReport report(UnitId unit) {
    units.settle_if_due([&] { return ledger.peak(); });
    for (UnitReport& each : units.read(ledger.peak())) {
      if (each.id == unit) return each;
    }
    return {};
  }
  int64_t now(UnitId unit, Category category) { return report(unit).now[kCpu][category]; }
  int64_t at_peak(UnitId unit, Category category) { return report(unit).at_peak[kCpu][category]; }

  Ledger ledger;
  ShardedUnits units;

 private:
  uint64_t last_ = 0;
};

TEST(ShardedUnits, ReducedGradientWasABufferBefore) {
  Program program;
  const StorageId output = program.make(kUnit, UnitFact::ReduceBuffer, 100);
  const StorageId input = program.make(kUnit, UnitFact::ReduceBuffer, 400);
  program.free(input);
  program.apply(kUnit, UnitFact::ReducedGrad, output);
  EXPECT_EQ(program.now(kUnit, Category::ShardedGrad), 100);
  EXPECT_EQ(program.at_peak(kUnit, Category::ShardedGrad), 0);
  EXPECT_EQ(program.at_peak(kUnit, Category::ReduceScatter), 500);
  EXPECT_EQ(program.ledger.peak().find(kCpu)->bytes[size_t(Category::ReduceScatter)], 500);
}

TEST(ShardedUnits, CastGradientIsAGradientSinceItsBirth) {
  Program program;
  const StorageId cast = program.make(kUnit, UnitFact::ReduceBuffer, 100);
  program.free(program.make(kUnit, UnitFact::ReduceBuffer, 400));
  program.apply(kUnit, UnitFact::ShardGrad, cast);
  EXPECT_EQ(program.at_peak(kUnit, Category::ShardedGrad), 100);
  EXPECT_EQ(program.at_peak(kUnit, Category::ReduceScatter), 400);
}

TEST(ShardedUnits, GradientBelongsToItsUnitSinceItsBirth) {
  Program program;
  const StorageId grad = program.make(100);
  program.free(program.make(900));  // the peak comes before the gradient's label
  program.apply(kUnit, UnitFact::UnshardedGrad, grad);
  EXPECT_EQ(program.at_peak(kUnit, Category::UnshardedGrad), 100);
}

TEST(ShardedUnits, GradientLabelledAfterSettlingCountsAtThePeak) {
  Program program(/*kept_changes=*/0);
  const StorageId grad = program.make(100);
  program.make(kOther, UnitFact::Unsharded, 50);
  program.free(program.make(900));
  EXPECT_EQ(program.at_peak(kUnit, Category::UnshardedGrad), 0);
  program.apply(kUnit, UnitFact::UnshardedGrad, grad);
  EXPECT_EQ(program.at_peak(kUnit, Category::UnshardedGrad), 100);
  EXPECT_EQ(program.now(kUnit, Category::UnshardedGrad), 100);
}

TEST(ShardedUnits, BytesAtALaterPeakIncludeSettledChanges) {
  Program program(/*kept_changes=*/0);
  const StorageId whole = program.make(kUnit, UnitFact::Unsharded, 100);
  EXPECT_EQ(program.at_peak(kUnit, Category::UnshardedParam), 100);
  program.resize(whole, 0);
  EXPECT_EQ(program.at_peak(kUnit, Category::UnshardedParam), 100);
  EXPECT_EQ(program.now(kUnit, Category::UnshardedParam), 0);
  program.make(kOther, UnitFact::Unsharded, 300);
  program.resize(whole, 100);
  EXPECT_EQ(program.at_peak(kUnit, Category::UnshardedParam), 100);
  EXPECT_EQ(program.at_peak(kOther, Category::UnshardedParam), 300);
}

TEST(ShardedUnits, ShardThatIsGatheredWithoutACastStaysAShard) {
  EXPECT_FALSE(ShardedUnits::decide(UnitFact::GatherBuffer, Category::ShardedParam));
  EXPECT_FALSE(ShardedUnits::decide(UnitFact::GatherBuffer, Category::PostForwardShard));
  EXPECT_EQ(ShardedUnits::decide(UnitFact::GatherBuffer, Category::Activation)->role,
            Role::IsAllGatherBuffer);
}

TEST(ShardedUnits, AccumulatedGradientWasAGradientBefore) {
  const auto label = ShardedUnits::decide(UnitFact::ReducedGrad, Category::Gradient);
  EXPECT_EQ(label->role, Role::IsShardedGrad);
  EXPECT_EQ(label->since, Since::Birth);
}

TEST(ShardedUnits, UnitIsGatheredOnceUntilItIsReleased) {
  Program program;
  const ShardedUnits& units = program.units;
  EXPECT_EQ(units.state(kUnit), UnitState::Sharded);
  EXPECT_FALSE(program.apply(kUnit, UnitEventKind::Released, 0));
  EXPECT_TRUE(program.apply(kUnit, UnitEventKind::GatherBegun, 1, GatherReason::Prefetch));
  // Already prefetched: no effect.
  EXPECT_FALSE(program.apply(kUnit, UnitEventKind::GatherBegun, 2, GatherReason::Backward));
  EXPECT_EQ(units.state(kUnit), UnitState::Gathering);
  EXPECT_TRUE(program.apply(kUnit, UnitEventKind::GatherFinished, 3));
  EXPECT_EQ(units.state(kUnit), UnitState::Unsharded);
  EXPECT_TRUE(program.apply(kUnit, UnitEventKind::ReleasedToPostForwardShard, 4));
  EXPECT_EQ(units.state(kUnit), UnitState::PostForwardSharded);
  const UnitReport report = program.report(kUnit);
  ASSERT_EQ(report.gatherings.size(), 1);
  EXPECT_EQ(report.gatherings[0].reason, GatherReason::Prefetch);
  EXPECT_EQ(report.gatherings[0].begun.time_ns, 1);
  EXPECT_EQ(report.gatherings[0].complete->time_ns, 3);
  EXPECT_EQ(report.gatherings[0].released->time_ns, 4);
}

TEST(ShardedUnits, SharedBufferKeepsItsEarlierLabels) {
  Program program;
  const StorageId pool = program.make(kUnit, UnitFact::GatherBuffer, 100);
  program.apply(kUnit, UnitFact::ReduceBuffer, pool);
  EXPECT_EQ(program.at_peak(kUnit, Category::AllGather), 100);  // the first instant with 100
  EXPECT_EQ(program.now(kUnit, Category::ReduceScatter), 100);
}

TEST(ShardedUnits, UntrackedMemoryIsLabelledSinceItsBirth) {
  EXPECT_EQ(ShardedUnits::decide(UnitFact::AllReduceBuffer, Category::Untracked)->since,
            Since::Birth);
}

TEST(ShardedUnits, TimelineIsInTheOrderOfEvents) {
  for (const size_t kept_changes : {size_t{16384}, size_t{1}}) {
    Program program(kept_changes);
    const StorageId whole = program.make(kUnit, UnitFact::Unsharded, 100);
    const StorageId grad = program.make(10);
    program.resize(whole, 0);
    program.apply(kUnit, UnitFact::UnshardedGrad,
                  grad);  // late: the storage existed before the resize
    const auto timeline = program.report(kUnit).timeline;
    // Settling drops the beginning of the timeline, not the end.
    ASSERT_GE(timeline.size(), 1);
    EXPECT_EQ(timeline.back().split[Category::UnshardedParam], 0);
    EXPECT_EQ(timeline.back().split[Category::UnshardedGrad], 10);
    if (kept_changes == 1) continue;
    ASSERT_EQ(timeline.size(), 3);
    EXPECT_EQ(timeline[0].split[Category::UnshardedParam], 100);
    EXPECT_EQ(timeline[0].split.total(), 100);
    EXPECT_EQ(timeline[1].split.total(), 110);
  }
}

TEST(ShardedUnits, PeakShareCountsAllBytes) {
  Program program;
  program.make(kUnit, UnitFact::Unsharded, 100);
  program.make(300);
  EXPECT_DOUBLE_EQ(program.report(kUnit).peak_share[kCpu], 0.25);
}

TEST(ShardedUnits, OnlyTheLastGatheringsAreKept) {
  Program program;
  for (int64_t i = 0; i < 1000; ++i) {
    program.apply(kUnit, UnitEventKind::GatherBegun, i);
    program.apply(kUnit, UnitEventKind::GatherFinished, i);
    program.apply(kUnit, UnitEventKind::Released, i);
  }
  const UnitReport report = program.report(kUnit);
  EXPECT_EQ(report.gatherings.size(), ShardedUnits::kKeptGatherings);
  EXPECT_EQ(report.gatherings.back().begun.time_ns, 999);
}

}  // namespace
}  // namespace tidegauge
