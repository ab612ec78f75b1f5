// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/ledger/ledger.h"
#include "ledger_script.h"

namespace tidegauge {
namespace {

TEST(Ledger, EmptyLedgerHasNoDevices) {
  Ledger ledger;
  EXPECT_TRUE(ledger.current().devices.empty());
  EXPECT_TRUE(ledger.peak().devices.empty());
  EXPECT_TRUE(ledger.modules().empty());
  EXPECT_TRUE(ledger.step_peaks().empty());
}

TEST(Ledger, CategoriesAddUpToTheTotalOfEachDevice) {
  Script s;
  s.born(1, 100).born(2, 20, kInBackward).born(3, 3, kInOptimizerStep);
  s.on(cuda(1)).born(4, 4000, kFromAllocator);
  s.is_now(1, Role::IsParameter);
  const Snapshot now = s.ledger.current();
  ASSERT_EQ(now.devices.size(), 2u);
  EXPECT_EQ(now.total_bytes(kCpu), 123);
  EXPECT_EQ((*now.find(kCpu))[Category::Parameter], 100);
  EXPECT_EQ((*now.find(kCpu))[Category::Temp], 20);
  EXPECT_EQ((*now.find(kCpu))[Category::StepTemp], 3);
  EXPECT_EQ((*now.find(cuda(1)))[Category::Untracked], 4000);
}

TEST(Ledger, DeviceWithoutBytesIsLeftOut) {
  Script s;
  s.born(1, 100).on(cuda(0)).born(2, 0).freed(1);
  EXPECT_TRUE(s.ledger.current().devices.empty());
  EXPECT_EQ(s.ledger.peak().devices.size(), 1u);  // the cpu had bytes
}

TEST(Ledger, PeakOfEachDeviceIsAtItsOwnInstant) {
  Script s;
  s.born(1, 100).freed(1);
  s.on(cuda(0)).born(2, 50);
  const Snapshot peak = s.ledger.peak();
  ASSERT_EQ(peak.devices.size(), 2u);
  EXPECT_EQ(peak.devices[0].at.sequence, 1u);
  EXPECT_EQ(peak.devices[1].at.sequence, 3u);
  EXPECT_EQ(peak.devices[1].at.time_ns, 3);
}

TEST(Ledger, PeakIncludesAResizeThatIsUndone) {
  Script s;
  s.born(1, 16).resized(1, 1 << 20).resized(1, 16);
  EXPECT_EQ(s.ledger.peak().total_bytes(kCpu), 1 << 20);
  EXPECT_EQ(s.ledger.current().total_bytes(kCpu), 16);
}

TEST(Ledger, PeakHasStepAndOptimizerStateOfItsInstant) {
  Script s;
  s.happens(EventKind::StepMarker).born(1, 10).happens(EventKind::StepMarker);
  s.happens(EventKind::OptimizerStepBegin).happens(EventKind::CollectiveBegin);
  s.born(2, 10, kInOptimizerStep);
  s.happens(EventKind::CollectiveEnd).happens(EventKind::OptimizerStepEnd);
  const Snapshot peak = s.ledger.peak();
  EXPECT_EQ(peak.devices[0].at.step, 2u);
  EXPECT_TRUE(peak.devices[0].at.in_optimizer_step);
  EXPECT_TRUE(peak.devices[0].at.in_collective);
  EXPECT_FALSE(s.ledger.now().in_optimizer_step);
}

TEST(Ledger, PeakResetStartsFromTheCurrentState) {
  Script s;
  s.born(1, 100).born(2, 10).freed(1).happens(EventKind::PeakReset);
  EXPECT_EQ(s.ledger.peak().total_bytes(kCpu), 10);
  s.born(3, 5).freed(3);
  EXPECT_EQ(s.ledger.peak().total_bytes(kCpu), 15);
}

TEST(Ledger, PeakResetInsideAModuleLeavesTheModulesPeakAlone) {
  Script s;
  s.enter(1).born(1, 100).freed(1).happens(EventKind::PeakReset).born(2, 30).exit(1);
  EXPECT_EQ(s.totals(1, ModuleState::PeakForward), std::vector<int64_t>{100});
  EXPECT_EQ(s.ledger.peak().total_bytes(kCpu), 30);
}

TEST(Ledger, KnowsModulesWithStatisticsOrSizes) {
  Script s;
  s.enter(1).exit(1).size(2, SizeOf::Inputs, 8);
  EXPECT_TRUE(s.ledger.knows(ModuleId(1)));
  EXPECT_TRUE(s.ledger.knows(ModuleId(2)));
  EXPECT_FALSE(s.ledger.knows(ModuleId(3)));
  s.size(1, SizeOf::Inputs, 8).happens(EventKind::IterationBegin);  // keeps sizes
  EXPECT_TRUE(s.ledger.knows(ModuleId(1)));
  for (const uint32_t module : {1u, 2u}) {
    s.apply(events::module_gone({}, ModuleId(module)));
    EXPECT_FALSE(s.ledger.knows(ModuleId(module)));
  }
}

TEST(Ledger, EachStepHasItsOwnPeak) {
  Script s;
  s.born(1, 1000).freed(1);  // before the first step
  s.happens(EventKind::StepMarker).born(2, 10).born(3, 90).freed(3);
  s.happens(EventKind::StepMarker).born(4, 20);
  const std::vector<StepPeak> peaks = s.ledger.step_peaks();
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_EQ(peaks[0].step, 1u);
  EXPECT_FALSE(peaks[0].is_open);
  EXPECT_EQ(peaks[0].bytes.total_bytes(kCpu), 100);
  EXPECT_TRUE(peaks[1].is_open);
  EXPECT_EQ(peaks[1].bytes.total_bytes(kCpu), 30);
}

TEST(Ledger, OnlyTheLastStepsAreKept) {
  Script s({.kept_steps = 3});
  for (int step = 0; step < 10; ++step) s.happens(EventKind::StepMarker);
  const std::vector<StepPeak> peaks = s.ledger.step_peaks();
  ASSERT_EQ(peaks.size(), 4u);
  EXPECT_EQ(peaks.front().step, 7u);
  EXPECT_EQ(peaks.back().step, 10u);
}

TEST(Ledger, GradientLabelledLateIsAGradientAtThePeak) {
  Script s;
  s.born(1, 40, kInBackward).born(2, 60, kInBackward).freed(2);
  s.was_always(1, Role::IsGradient);
  const Snapshot peak = s.ledger.peak();
  EXPECT_EQ((*peak.find(kCpu))[Category::Gradient], 40);
  EXPECT_EQ((*peak.find(kCpu))[Category::Temp], 60);
}

TEST(Ledger, ClaimedMemoryHasItsLabelSinceItsAllocation) {
  Script s;
  s.born(1, 40, kFromAllocator).born(2, 60, kFromAllocator).freed(2);  // 2 was workspace
  EXPECT_EQ((*s.ledger.current().find(kCpu))[Category::Untracked], 40);
  s.claimed(1, kInBackward);
  EXPECT_EQ((*s.ledger.current().find(kCpu))[Category::Temp], 40);
  EXPECT_EQ((*s.ledger.peak().find(kCpu))[Category::Temp], 40);
  EXPECT_EQ((*s.ledger.peak().find(kCpu))[Category::Untracked], 60);
}

TEST(Ledger, LabelFromNowLeavesEarlierPeaksAlone) {
  Script s;
  s.born(1, 40).born(2, 60).freed(2).is_now(1, Role::IsParameter);
  EXPECT_EQ((*s.ledger.peak().find(kCpu))[Category::Activation], 100);
  EXPECT_EQ((*s.ledger.current().find(kCpu))[Category::Parameter], 40);
}

TEST(Ledger, LabelSinceBirthCorrectsAllPastSizes) {
  Script s;
  s.born(1, 10).enter(1).resized(1, 30).enter(2).resized(1, 20).is_now(1, Role::IsTemp).enter(3);
  s.was_always(1, Role::IsUnshardedParam);
  const int64_t sizes[] = {10, 30, 20};
  for (uint32_t module = 1; module <= 3; ++module) {
    const std::vector<ModuleSnapshot> list = s.list(module, ModuleState::PreForward);
    CategorySplit expected;
    expected[Category::UnshardedParam] = sizes[module - 1];
    EXPECT_EQ(*list.at(0).bytes.find(kCpu), expected) << module;
  }
}

TEST(Ledger, LastLabelSinceBirthWins) {
  Script s;
  s.born(1, 10).enter(1).was_always(1, Role::IsGradient);
  EXPECT_EQ((*s.list(1, ModuleState::PreForward)[0].bytes.find(kCpu))[Category::Gradient], 10);
  s.was_always(1, Role::IsShardedGrad);  // after the first one was settled by the read
  EXPECT_EQ((*s.list(1, ModuleState::PreForward)[0].bytes.find(kCpu))[Category::ShardedGrad], 10);
}

TEST(Ledger, LabelSinceBirthCorrectsThePeakOfAClosedStep) {
  Script s;
  s.born(1, 100).freed(1).happens(EventKind::StepMarker).born(2, 50);
  s.happens(EventKind::StepMarker).was_always(2, Role::IsGradient);
  EXPECT_EQ((*s.ledger.step_peaks()[0].bytes.find(kCpu))[Category::Gradient], 50);
}

TEST(Ledger, LabelDoesNotChangeAnEarlierStorageWithTheSameId) {
  Script s;
  s.born(1, 10).enter(1).freed(1).born(1, 10).was_always(1, Role::IsGradient);
  EXPECT_EQ((*s.list(1, ModuleState::PreForward)[0].bytes.find(kCpu))[Category::Activation], 10);
}

TEST(Ledger, LabelsAfterSettlingCorrectThePastAgain) {
  Script s({.settle_after = 0});
  s.born(1, 10).enter(1);
  for (int i = 0; i < 100; ++i)
    s.resized(1, 20 + i).is_now(1, i % 2 ? Role::IsTemp : Role::IsInput);
  s.was_always(1, Role::IsParameter);
  CategorySplit expected;
  expected[Category::Parameter] = 10;
  EXPECT_EQ(*s.list(1, ModuleState::PreForward)[0].bytes.find(kCpu), expected);
}

TEST(Ledger, FindStorageReturnsLiveStorages) {
  Script s;
  s.on(cuda(2)).born(5, 64).is_now(5, Role::IsBuffer);
  EXPECT_EQ(s.ledger.find_storage(StorageId(5)), (StorageInfo{cuda(2), 64, Category::Buffer}));
  EXPECT_EQ(s.ledger.find_storage(StorageId(6)), std::nullopt);
  EXPECT_EQ(s.ledger.storage_count(), 1u);
}

// As in a training run under FSDP: the same storages are resized and relabelled in every step, and
// the peak of the run is at its start. Late labels and history must not accumulate.
TEST(Ledger, MemoryDoesNotGrowOverALongRun) {
  Script s({.kept_steps = 16});
  const auto highest_footprint = [&](int iterations) {
    size_t highest = 0;
    for (int i = 0; i < iterations; ++i) {
      s.happens(EventKind::IterationBegin).happens(EventKind::StepMarker).enter(1);
      s.resized(1, 4096).was_always(1, Role::IsUnshardedParam);
      s.born(3, 64).is_now(3, Role::IsInput).enter(2).exit(2).was_always(3, Role::IsGradient);
      s.freed(3).is_now(2, i % 2 ? Role::IsTemp : Role::IsActivation).resized(1, 0).exit(1);
      highest = std::max(highest, s.ledger.footprint_bytes());
    }
    return highest;
  };
  s.born(1, 0).born(2, 8).born(9, 1 << 20).freed(9);
  const size_t first = highest_footprint(20'000);
  const size_t rest = highest_footprint(std::getenv("TIDEGAUGE_LONG") ? 1'000'000 : 100'000);
  EXPECT_LE(rest, first);
  EXPECT_LT(first, 512u << 10);

  EXPECT_EQ(s.ledger.peak().devices[0].at.sequence, 3u);
  s.was_always(2, Role::IsParameter);  // corrects the whole run
  EXPECT_EQ((*s.ledger.peak().find(kCpu))[Category::Parameter], 8);
  EXPECT_EQ(s.ledger.anomalies().total(), 0u);
}

}  // namespace
}  // namespace tidegauge
