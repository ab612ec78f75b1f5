// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <vector>

#include "core/events/event_factory.h"
#include "core/modules/open_calls.h"

namespace tidegauge {
namespace {

constexpr ModuleId kOuter{1};
constexpr ModuleId kInner{2};

struct Calls : OpenCalls {
  bool enter(ModuleId module, Phase phase = Phase::Forward, uint16_t thread = 1, size_t mark = 0) {
    return OpenCalls::enter(events::module_enter(origin(thread), module, phase), mark);
  }
  /// The mark of the call that ended; -1 if none did.
  int leave(ModuleId module, Phase phase = Phase::Forward, uint16_t thread = 1) {
    const auto call = OpenCalls::leave(events::module_exit(origin(thread), module, phase));
    return call ? static_cast<int>(call->mark) : -1;
  }
  static events::Origin origin(uint16_t thread) { return {0, ThreadId(thread), {}}; }
};

TEST(OpenCalls, ExitEndsTheYoungestCallOfItsModule) {
  Calls calls;
  calls.enter(kOuter, Phase::Forward, 1, 10);
  calls.enter(kOuter, Phase::Forward, 1, 11);  // a module that calls itself
  EXPECT_EQ(calls.leave(kOuter), 11);
  EXPECT_EQ(calls.leave(kOuter), 10);
  EXPECT_EQ(calls.leave(kOuter), -1);
}

TEST(OpenCalls, CallsMayEndOutOfOrder) {
  Calls calls;
  calls.enter(kOuter, Phase::Backward, 1, 10);
  calls.enter(kInner, Phase::Backward, 1, 11);
  EXPECT_EQ(calls.leave(kOuter, Phase::Backward), 10);
  EXPECT_EQ(calls.innermost(ThreadId(1)), kInner);
  EXPECT_EQ(calls.leave(kInner, Phase::Backward), 11);
  EXPECT_TRUE(calls.empty());
}

TEST(OpenCalls, ExitMatchesThePhase) {
  Calls calls;
  calls.enter(kOuter, Phase::Backward, 1, 10);
  calls.enter(kOuter, Phase::Recompute, 1, 11);
  EXPECT_EQ(calls.leave(kOuter, Phase::Forward), -1);
  EXPECT_EQ(calls.leave(kOuter, Phase::Backward), 10);
  EXPECT_TRUE(calls.is_open(kOuter, Phase::Recompute));
  EXPECT_FALSE(calls.is_open(kOuter, Phase::Backward));
}

TEST(OpenCalls, ForwardEndsInItsOwnThread) {
  Calls calls;
  calls.enter(kOuter, Phase::Forward, 1, 10);
  calls.enter(kOuter, Phase::Forward, 2, 11);
  EXPECT_EQ(calls.leave(kOuter, Phase::Forward, 1), 10);
  EXPECT_EQ(calls.leave(kOuter, Phase::Forward, 3), -1);
  EXPECT_EQ(calls.leave(kOuter, Phase::Forward, 2), 11);
}

TEST(OpenCalls, BackwardMayEndInAnotherThread) {
  Calls calls;
  calls.enter(kOuter, Phase::Backward, 1, 10);
  calls.enter(kOuter, Phase::Backward, 2, 11);
  EXPECT_EQ(calls.leave(kOuter, Phase::Backward, 1), 10);  // its own thread comes first
  EXPECT_EQ(calls.leave(kOuter, Phase::Backward, 1), 11);
}

TEST(OpenCalls, InvalidEnterOpensNothing) {
  Calls calls;
  EXPECT_FALSE(calls.enter(ModuleId()));
  EXPECT_FALSE(calls.enter(kOuter, static_cast<Phase>(kPhaseCount)));
  EXPECT_TRUE(calls.empty());
}

TEST(OpenCalls, ListsTheModulesOfAThreadInnermostFirst) {
  Calls calls;
  calls.enter(kOuter, Phase::Forward, 1);
  calls.enter(ModuleId(9), Phase::Forward, 2);
  calls.enter(kInner, Phase::Forward, 1);
  std::vector<ModuleId> modules;
  calls.append_to(modules, ThreadId(1));
  EXPECT_EQ(modules, (std::vector{kInner, kOuter}));
  EXPECT_EQ(calls.innermost(ThreadId(3)), ModuleId());
}

}  // namespace
}  // namespace tidegauge
