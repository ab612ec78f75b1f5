// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "core/ledger/module_stats.h"
#include "ledger_script.h"

namespace tidegauge {
namespace {

using Totals = std::vector<int64_t>;

TEST(ModuleStats, ForwardHasSnapshotsBeforeAndAfterAndThePeakBetween) {
  Script s;
  s.born(1, 10).enter(1).born(2, 90).freed(2).born(3, 5).exit(1);
  EXPECT_EQ(s.totals(1, ModuleState::PreForward), Totals{10});
  EXPECT_EQ(s.totals(1, ModuleState::PeakForward), Totals{100});
  EXPECT_EQ(s.totals(1, ModuleState::PostForward), Totals{15});
}

TEST(ModuleStats, BackwardHasItsOwnStates) {
  Script s;
  s.enter(1, Phase::Backward).born(1, 7).exit(1, Phase::Backward);
  EXPECT_EQ(s.totals(1, ModuleState::PreBackward), Totals{0});
  EXPECT_EQ(s.totals(1, ModuleState::PeakBackward), Totals{7});
  EXPECT_EQ(s.totals(1, ModuleState::PostBackward), Totals{7});
  EXPECT_TRUE(s.list(1, ModuleState::PreForward).empty());
}

TEST(ModuleStats, RecomputeHasNoPeakOfItsOwn) {
  Script s;
  s.enter(1, Phase::Backward);
  s.enter(1, Phase::Recompute).born(1, 7).exit(1, Phase::Recompute);
  EXPECT_EQ(s.totals(1, ModuleState::PreForwardAc), Totals{0});
  EXPECT_EQ(s.totals(1, ModuleState::PostForwardAc), Totals{7});
  EXPECT_TRUE(s.list(1, ModuleState::PeakForward).empty());
  s.exit(1, Phase::Backward);
  EXPECT_EQ(s.totals(1, ModuleState::PeakBackward), Totals{7});
}

TEST(ModuleStats, EveryCallHasItsEntryInTheOrderOfCalls) {
  Script s;
  s.enter(1).born(1, 1).exit(1).enter(1).born(2, 2).exit(1).enter(1).born(3, 4).exit(1);
  EXPECT_EQ(s.totals(1, ModuleState::PreForward), (Totals{0, 1, 3}));
  EXPECT_EQ(s.totals(1, ModuleState::PeakForward), (Totals{1, 3, 7}));
}

TEST(ModuleStats, EntriesOfARecursiveCallMatchByCall) {
  Script s;
  s.enter(1).born(1, 1).enter(1).born(2, 2).exit(1).born(3, 4).exit(1);
  EXPECT_EQ(s.totals(1, ModuleState::PeakForward), (Totals{7, 3}));  // outer call first
  const auto before = s.list(1, ModuleState::PreForward);
  const auto after = s.list(1, ModuleState::PostForward);
  const auto peak = s.list(1, ModuleState::PeakForward);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(before[i].call, after[i].call);
    EXPECT_EQ(before[i].call, peak[i].call);
  }
}

TEST(ModuleStats, PeakCoversTheWholeCallWhenModulesEndOutOfOrder) {
  Script s;
  s.enter(1, Phase::Backward).enter(2, Phase::Backward).born(1, 100).freed(1);
  s.exit(1, Phase::Backward).born(2, 150).freed(2).exit(2, Phase::Backward);
  EXPECT_EQ(s.totals(1, ModuleState::PeakBackward), Totals{100});
  EXPECT_EQ(s.totals(2, ModuleState::PeakBackward), Totals{150});
}

TEST(ModuleStats, PeakOfAnOpenCallIsThePeakSoFar) {
  Script s;
  s.enter(1).born(1, 30).freed(1);
  const auto peaks = s.list(1, ModuleState::PeakForward);
  ASSERT_EQ(peaks.size(), 1u);
  EXPECT_TRUE(peaks[0].is_open);
  EXPECT_EQ(peaks[0].bytes.total_bytes(kCpu), 30);
  s.exit(1);
  EXPECT_FALSE(s.list(1, ModuleState::PeakForward)[0].is_open);
}

TEST(ModuleStats, PeakIncludesADeviceThatAppearsDuringTheCall) {
  Script s;
  s.born(1, 10).enter(1).enter(2).on(cuda(0)).born(2, 500).freed(2).on(kCpu).exit(2).exit(1);
  EXPECT_EQ(s.totals(1, ModuleState::PeakForward, cuda(0)), Totals{500});
  EXPECT_EQ(s.totals(2, ModuleState::PeakForward, cuda(0)), Totals{500});
  EXPECT_EQ(s.totals(1, ModuleState::PeakForward, kCpu), Totals{10});
  EXPECT_EQ(s.totals(1, ModuleState::PreForward, cuda(0)), Totals{0});
}

TEST(ModuleStats, ThreadsEndTheirOwnCalls) {
  Script s;
  s.in_thread(1).enter(1).born(1, 1);
  s.in_thread(2).enter(1).born(2, 2);
  s.in_thread(1).exit(1).born(3, 4);
  s.in_thread(2).exit(1);
  EXPECT_EQ(s.totals(1, ModuleState::PeakForward), (Totals{3, 7}));
}

TEST(ModuleStats, BackwardMayEndInAnotherThread) {
  Script s;
  s.in_thread(1).enter(1, Phase::Backward).in_thread(2).exit(1, Phase::Backward);
  EXPECT_EQ(s.list(1, ModuleState::PostBackward).size(), 1u);
  s.in_thread(1).enter(1).in_thread(2).exit(1);  // a forward does not end in another thread
  EXPECT_EQ(s.ledger.anomalies().count_of(Anomaly::ExitWithoutEnter), 1u);
}

TEST(ModuleStats, MarksAreSnapshotsWithoutACall) {
  Script s;
  s.born(1, 3).mark(1, ModuleState::BeforePreForward).enter(1).born(2, 4);
  s.mark(1, ModuleState::AfterPreForward).mark(1, ModuleState::AfterPreForward);
  EXPECT_EQ(s.totals(1, ModuleState::BeforePreForward), Totals{3});
  EXPECT_EQ(s.totals(1, ModuleState::AfterPreForward), (Totals{7, 7}));
  EXPECT_EQ(s.list(1, ModuleState::AfterPreForward)[0].call, 0u);
}

TEST(ModuleStats, ModulesAreListedInTheOrderOfTheirFirstEvent) {
  Script s;
  s.size(9, SizeOf::Inputs, 1).enter(5).enter(3).exit(3).exit(5).enter(4);
  EXPECT_EQ(s.ledger.modules(), (std::vector{ModuleId(5), ModuleId(3), ModuleId(4)}));
}

TEST(ModuleStats, LastModuleSizeWins) {
  Script s;
  s.size(1, SizeOf::Parameters, 400).size(1, SizeOf::Inputs, 1).size(1, SizeOf::Inputs, 2);
  const ModuleStats stats = s.ledger.module_stats(ModuleId(1));
  EXPECT_EQ(stats.size_bytes(SizeOf::Parameters), 400);
  EXPECT_EQ(stats.size_bytes(SizeOf::Inputs), 2);
  EXPECT_EQ(stats.size_bytes(SizeOf::Outputs), std::nullopt);
}

TEST(ModuleStats, IterationRestartsListsAndKeepsSizesPeakAndBytes) {
  Script s;
  s.size(1, SizeOf::Parameters, 400).enter(1).born(1, 9).born(2, 1).freed(2).exit(1);
  s.happens(EventKind::IterationBegin);
  EXPECT_TRUE(s.ledger.modules().empty());
  EXPECT_TRUE(s.list(1, ModuleState::PreForward).empty());
  EXPECT_EQ(s.ledger.module_stats(ModuleId(1)).size_bytes(SizeOf::Parameters), 400);
  EXPECT_EQ(s.ledger.peak().total_bytes(kCpu), 10);
  EXPECT_EQ(s.ledger.current().total_bytes(kCpu), 9);
  s.enter(1).exit(1);
  EXPECT_EQ(s.totals(1, ModuleState::PeakForward), Totals{9});
}

TEST(ModuleStats, ResetForgetsSizesToo) {
  Script s;
  s.size(1, SizeOf::Parameters, 400).enter(1).born(1, 9).exit(1);
  s.happens(EventKind::StatisticsReset);
  EXPECT_EQ(s.ledger.module_stats(ModuleId(1)), ModuleStats{});
  EXPECT_EQ(s.ledger.peak().total_bytes(kCpu), 9);
}

TEST(ModuleStats, CallThatWasOpenAtAResetEndsInTheNewLists) {
  Script s;
  s.enter(1).born(1, 9).freed(1).happens(EventKind::StatisticsReset).born(2, 4).exit(1);
  EXPECT_TRUE(s.list(1, ModuleState::PreForward).empty());
  EXPECT_EQ(s.totals(1, ModuleState::PostForward), Totals{4});
  EXPECT_EQ(s.totals(1, ModuleState::PeakForward), Totals{9});  // of the whole call
  EXPECT_EQ(s.ledger.anomalies().total(), 0u);
}

}  // namespace
}  // namespace tidegauge
