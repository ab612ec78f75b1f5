// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <string>

#include "core/ledger/fsdp_states.h"
#include "ledger_script.h"

namespace tidegauge {
namespace {

using Names = std::vector<std::string>;

ModuleStats stats_of(Script& s, uint32_t module) { return s.ledger.module_stats(ModuleId(module)); }

Names names_of(const ModuleStats& stats) {
  Names names;
  for (const FsdpState& state : fsdp_states(stats)) names.emplace_back(state.name);
  return names;
}

std::vector<int64_t> totals_of(const ModuleStats& stats, std::string_view name, Device device) {
  std::vector<int64_t> totals;
  for (const FsdpState& state : fsdp_states(stats)) {
    if (state.name != name) continue;
    for (const Snapshot& call : state.calls) totals.push_back(call.total_bytes(device));
  }
  return totals;
}

TEST(FsdpStates, AreInTheOrderOfTheirFirstEntries) {
  Script s;
  s.enter(1).mark(1, ModuleState::AfterPreForward).exit(1);
  EXPECT_EQ(names_of(stats_of(s, 1)), (Names{"Peak Forward", "Before Pre-Forward",
                                             "After Pre-Forward", "After Post-Forward"}));
}

TEST(FsdpStates, PeakForwardIsTheMaximumOfEachDeviceOverAllCalls) {
  const Device gpu = cuda(0);
  Script s;
  s.enter(1).born(1, 8).exit(1).freed(1);
  s.enter(1).on(gpu).born(2, 5).exit(1);
  const ModuleStats stats = stats_of(s, 1);
  EXPECT_EQ(totals_of(stats, "Peak Forward", kCpu), std::vector<int64_t>{8});
  EXPECT_EQ(totals_of(stats, "Peak Forward", gpu), std::vector<int64_t>{5});
}

TEST(FsdpStates, OnlyTheFirstCallHasAnEntryBeforePreForward) {
  Script s;
  s.born(1, 3).enter(1).exit(1).born(2, 4).enter(1).exit(1);
  const ModuleStats stats = stats_of(s, 1);
  EXPECT_EQ(totals_of(stats, "Before Pre-Forward", kCpu), std::vector<int64_t>{3});
  EXPECT_EQ(totals_of(stats, "After Post-Forward", kCpu), (std::vector<int64_t>{3, 7}));
}

TEST(FsdpStates, WrapperGetsTheRecomputesOfItsModule) {
  Script s;
  s.enter(1).enter(2).exit(2).exit(1);
  s.enter(2, Phase::Recompute).born(1, 6).exit(2, Phase::Recompute);
  ModuleStats wrapper = stats_of(s, 1);
  add_recompute(wrapper, stats_of(s, 2));
  EXPECT_EQ(totals_of(wrapper, "Pre-Forward AC", kCpu), std::vector<int64_t>{0});
  EXPECT_EQ(totals_of(wrapper, "Post-Forward AC", kCpu), std::vector<int64_t>{6});
}

TEST(FsdpStates, WrapperKeepsItsOwnRecomputes) {
  Script s;
  s.enter(1, Phase::Recompute).exit(1, Phase::Recompute);
  s.enter(2, Phase::Recompute).born(1, 6).exit(2, Phase::Recompute);
  ModuleStats wrapper = stats_of(s, 1);
  const ModuleStats own = wrapper;
  add_recompute(wrapper, stats_of(s, 2));
  EXPECT_EQ(wrapper, own);
}

}  // namespace
}  // namespace tidegauge
