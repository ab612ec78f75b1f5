// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "core/modules/call_log.h"

namespace tidegauge {
namespace {

constexpr int64_t kForward = -1;
constexpr ModuleId kNet{1};
constexpr ModuleId kFirst{2};
constexpr ModuleId kSecond{3};
using Modules = std::vector<ModuleId>;

bool leave(CallLog& log, ModuleId module, uint64_t sequence) {
  const auto open = log.find_open(module);
  if (open) log.leave(*open, sequence);
  return open.has_value();
}

/// Net makes node 10, First 11 and 12, Net 13, Second 14.
CallLog net_with_two_children() {
  CallLog log;
  log.open_block(kForward, 10, {});
  log.enter(kNet, 10);
  log.enter(kFirst, 11);
  leave(log, kFirst, 13);
  log.enter(kSecond, 14);
  leave(log, kSecond, 15);
  leave(log, kNet, 15);
  return log;
}

Modules open_modules(const CallLog& log) {
  Modules modules;
  log.append_open(modules);
  return modules;
}

TEST(CallLog, NodeBelongsToTheCallThatMadeIt) {
  const CallLog log = net_with_two_children();
  EXPECT_EQ(log.find(9).chain(), Modules{});
  EXPECT_EQ(log.find(10).chain(), Modules{kNet});
  EXPECT_EQ(log.find(11).chain(), (Modules{kNet, kFirst}));
  EXPECT_EQ(log.find(12).chain(), (Modules{kNet, kFirst}));
  EXPECT_EQ(log.find(13).chain(), Modules{kNet});
  EXPECT_EQ(log.find(14).chain(), (Modules{kNet, kSecond}));
  EXPECT_EQ(log.find(15).chain(), Modules{});
}

TEST(CallLog, HintDoesNotChangeTheAnswer) {
  const CallLog log = net_with_two_children();
  const std::shared_ptr<CallBlock> block = log.find(10).block;
  constexpr uint32_t kCalls[] = {CallBlock::kNoCall, 0, 1, 1, 0, 2,
                                 CallBlock::kNoCall};  // of the nodes 9 to 15
  for (uint64_t sequence = 9; sequence <= 15; ++sequence) {
    for (size_t begin = 0; begin < 8; ++begin) {
      SequenceRange range;
      size_t hint = begin;
      EXPECT_EQ(block->call_of(sequence, range, hint), kCalls[sequence - 9]) << begin;
      EXPECT_EQ(range.contains(sequence), block->is_only_home_of(sequence)) << begin;
    }
  }
}

TEST(CallLog, OpenCallsAreOutermostFirst) {
  CallLog log;
  EXPECT_TRUE(log.needs_block(kForward));
  log.open_block(kForward, 0, {});
  EXPECT_FALSE(log.needs_block(kForward));
  log.enter(kNet, 0);
  log.enter(kFirst, 0);
  EXPECT_EQ(open_modules(log), (Modules{kNet, kFirst}));
  leave(log, kFirst, 0);
  leave(log, kNet, 0);
  EXPECT_EQ(open_modules(log), Modules{});
  EXPECT_FALSE(log.has_open());
}

TEST(CallLog, LeavingAModuleClosesCallsThatAnExceptionLeftOpen) {
  CallLog log;
  log.open_block(kForward, 0, {});
  log.enter(kNet, 0);
  log.enter(kFirst, 1);
  EXPECT_TRUE(leave(log, kNet, 2));
  EXPECT_FALSE(log.has_open());
  EXPECT_FALSE(leave(log, kFirst, 2));
}

TEST(CallLog, RecursionLeavesTheInnermostCallFirst) {
  CallLog log;
  log.open_block(kForward, 0, {});
  log.enter(kNet, 0);
  log.enter(kNet, 1);
  EXPECT_TRUE(leave(log, kNet, 2));
  EXPECT_EQ(open_modules(log), Modules{kNet});
  EXPECT_TRUE(leave(log, kNet, 3));
  EXPECT_FALSE(leave(log, kNet, 3));
}

TEST(CallLog, RecomputeRunsWithinItsBase) {
  CallLog log = net_with_two_children();
  const Modules base{kNet, kFirst};
  log.open_block(/*task=*/7, 20, base, BlockKind::kRegion);
  EXPECT_EQ(open_modules(log), base);
  log.enter(kSecond, 21);
  EXPECT_EQ(open_modules(log), (Modules{kNet, kFirst, kSecond}));
  leave(log, kSecond, 22);
  EXPECT_EQ(log.close_region(23), BlockKind::kRegion);
  EXPECT_EQ(log.find(20).chain(), base);
  EXPECT_EQ(log.find(21).chain(), (Modules{kNet, kFirst, kSecond}));
  EXPECT_EQ(log.find(22).chain(), base);
  EXPECT_EQ(log.find(23).chain(), Modules{});
}

TEST(CallLog, NodesAfterANestedBlockBelongToTheEnclosingCall) {
  CallLog log;
  log.open_block(kForward, 0, {});
  log.enter(kNet, 0);
  EXPECT_TRUE(log.needs_block(/*task=*/5));
  log.open_block(/*task=*/5, 2, Modules{kFirst});
  log.enter(kSecond, 2);
  EXPECT_EQ(open_modules(log), (Modules{kNet, kFirst, kSecond}));
  leave(log, kSecond, 4);
  EXPECT_EQ(log.find(3).chain(), (Modules{kFirst, kSecond}));
  EXPECT_EQ(log.find(4).chain(), Modules{kNet});
  leave(log, kNet, 6);
  EXPECT_EQ(log.find(5).chain(), Modules{kNet});
}

TEST(CallLog, ClosingARegionThatIsNotOpenHasNoEffect) {
  CallLog log;
  EXPECT_EQ(log.close_region(0), BlockKind::kCall);
  log.open_block(kForward, 0, {});
  log.enter(kNet, 0);
  EXPECT_EQ(log.close_region(0), BlockKind::kCall);
  EXPECT_EQ(open_modules(log), Modules{kNet});
}

TEST(CallLog, HeldBlockOutlivesTheRecentOnes) {
  CallLog log;
  std::shared_ptr<CallBlock> held;
  for (uint64_t i = 0; i < 3 * CallLog::kRecentBlocks; ++i) {
    log.open_block(kForward, i, {});
    log.enter(kNet, i);
    if (i == 5) held = log.ref(*log.find_open(kNet)).block;
    leave(log, kNet, i + 1);
  }
  EXPECT_EQ(log.find(5).chain(), Modules{kNet});
  EXPECT_EQ(log.find(6).chain(), Modules{});  // dropped: no CallRef holds it
  EXPECT_EQ(log.find(3 * CallLog::kRecentBlocks - 1).chain(), Modules{kNet});
  EXPECT_TRUE(log.keep_held_only());
  held.reset();
  EXPECT_FALSE(log.keep_held_only());
}

TEST(CallLog, LeavingAllClosesOpenCallsAndKeepsTheirNodes) {
  CallLog log;
  log.open_block(kForward, 0, {});
  log.enter(kNet, 0);
  log.enter(kFirst, 1);
  log.leave_all(3);
  EXPECT_FALSE(log.has_open());
  EXPECT_EQ(log.find(2).chain(), (Modules{kNet, kFirst}));
  EXPECT_EQ(log.find(3).chain(), Modules{});
}

TEST(CallLog, LatestCallOfAModuleIsFound) {
  CallLog log = net_with_two_children();
  EXPECT_EQ(log.find_latest(kFirst).chain(), (Modules{kNet, kFirst}));
  EXPECT_FALSE(log.find_latest(ModuleId{99}));
  log.open_block(kForward, 30, {});
  log.enter(kFirst, 30);
  leave(log, kFirst, 31);
  EXPECT_EQ(log.find_latest(kFirst).chain(), Modules{kFirst});
}

using Moves = std::vector<ModuleMove>;
constexpr bool kLeaves = false;
constexpr bool kEnters = true;

Moves move(const CallRef& from, const CallRef& to) {
  Moves moves;
  append_move(from.block.get(), from.call, to.block.get(), to.call, moves);
  return moves;
}

TEST(CallLog, MoveLeavesInnermostFirstAndEntersOutermostFirst) {
  const CallLog log = net_with_two_children();
  const CallRef none;
  EXPECT_EQ(move(none, log.find(14)), (Moves{{kNet, kEnters}, {kSecond, kEnters}}));
  EXPECT_EQ(move(log.find(14), log.find(11)), (Moves{{kSecond, kLeaves}, {kFirst, kEnters}}));
  EXPECT_EQ(move(log.find(11), log.find(10)), (Moves{{kFirst, kLeaves}}));
  EXPECT_EQ(move(log.find(11), none), (Moves{{kFirst, kLeaves}, {kNet, kLeaves}}));
}

TEST(CallLog, MoveIntoARecomputeDoesNotEnterItsBase) {
  CallLog log = net_with_two_children();
  log.open_block(/*task=*/7, 20, Modules{kNet, kFirst}, BlockKind::kKeptRegion);
  log.enter(kSecond, 21);
  leave(log, kSecond, 22);
  log.close_region(23);
  EXPECT_EQ(move({}, log.find(21)), (Moves{{kSecond, kEnters}}));
  EXPECT_EQ(move({}, log.find(20)), Moves{});
}

/// Net makes node 0; First and then Second pass its result on; Net makes node 1 from it.
CallLog net_with_two_that_hand_on() {
  CallLog log;
  log.open_block(kForward, 0, {});
  log.enter(kNet, 0);
  for (const ModuleId module : {kFirst, kSecond}) {
    const CallLog::OpenCall call = log.enter(module, 1);
    EXPECT_TRUE(log.is_silent(call, 1));
    log.add_stop(call, 0);
    log.leave(call, 1);
  }
  leave(log, kNet, 2);
  return log;
}

Modules stops_before(const CallLog& log, uint64_t sequence) {
  const CallRef ref = log.find(sequence);
  Modules modules;
  ref.block->visit_stops(sequence,
                         [&](uint32_t call) { modules.push_back(ref.block->module(call)); });
  return modules;
}

TEST(CallLog, PassThroughCallsAreStopsInReverseOrder) {
  const CallLog log = net_with_two_that_hand_on();
  EXPECT_EQ(stops_before(log, 1), Modules{});
  EXPECT_EQ(stops_before(log, 0), (Modules{kSecond, kFirst}));
}

TEST(CallLog, RangeEndsAtAStop) {
  const CallLog log = net_with_two_that_hand_on();
  SequenceRange range;
  log.find(1, &range);
  EXPECT_TRUE(range.contains(1));
  EXPECT_FALSE(range.contains(0));
  log.find(0, &range);
  EXPECT_TRUE(range.contains(0));
  EXPECT_FALSE(range.contains(1));
}

TEST(CallLog, NodeOfAnotherBlockIsNotAStop) {
  CallLog log;
  log.open_block(kForward, 5, {});
  const CallLog::OpenCall call = log.enter(kFirst, 5);
  log.add_stop(call, 4);
  log.add_stop(call, 5);
  log.leave(call, 6);
  EXPECT_EQ(stops_before(log, 5), Modules{});
}

TEST(CallLog, RangeCoversTheNodesOfTheCall) {
  const CallLog log = net_with_two_children();
  SequenceRange range;
  log.find(12, &range);
  EXPECT_TRUE(range.contains(11) && range.contains(12));
  EXPECT_FALSE(range.contains(10) || range.contains(13));
}

TEST(CallLog, RangeInAnOpenBlockIsOneNode) {
  CallLog log;
  log.open_block(kForward, 0, {});
  log.enter(kNet, 0);
  SequenceRange range;
  EXPECT_EQ(log.find(1, &range).chain(), Modules{kNet});
  EXPECT_TRUE(range.contains(1));
  EXPECT_FALSE(range.contains(2));
}

/// Random nestings of calls and regions, compared with a plain list of the open modules at each
/// node.
TEST(CallLog, AgreesWithAListOfOpenModulesForEachNode) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    CallLog log;
    std::vector<Modules> stacks{{}};  // one per open region, and one outside of all
    std::vector<Modules> truth;
    std::vector<std::shared_ptr<CallBlock>> held;
    for (int i = 0; i < 200; ++i) {
      const auto sequence = static_cast<uint64_t>(truth.size());
      const int64_t task = static_cast<int64_t>(stacks.size()) - 2;
      switch (random() % 5) {
        case 0: {
          const ModuleId module{1 + static_cast<uint32_t>(random() % 4)};
          if (log.needs_block(task)) log.open_block(task, sequence, {});
          log.enter(module, sequence);
          held.push_back(log.ref(*log.find_open(module)).block);
          stacks.back().push_back(module);
          break;
        }
        case 1:
          if (stacks.back().size() > (stacks.size() > 1 ? 1U : 0U)) {
            EXPECT_TRUE(leave(log, stacks.back().back(), sequence));
            stacks.back().pop_back();
          }
          break;
        case 2:
          if (stacks.size() < 4) {
            const Modules base{ModuleId{9}};
            log.open_block(task + 1, sequence, base, BlockKind::kKeptRegion);
            stacks.push_back(base);
          }
          break;
        case 3:
          if (stacks.size() > 1) {
            EXPECT_EQ(log.close_region(sequence), BlockKind::kKeptRegion);
            stacks.pop_back();
          }
          break;
        default:
          truth.push_back(stacks.back());
      }
    }
    for (size_t node = 0; node < truth.size(); ++node) {
      EXPECT_EQ(log.find(node).chain(), truth[node]) << "node " << node;
    }
  }
}

}  // namespace
}  // namespace tidegauge
