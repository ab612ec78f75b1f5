// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "capture/modules/module_activity.h"

namespace tidegauge {
namespace {

using Modules = std::vector<ModuleId>;

constexpr ModuleId kRoot{1}, kChild{2}, kStranger{3};

/// A root "Net" with a child "fc".
std::shared_ptr<ModuleActivity> make_activity() {
  auto activity = ModuleActivity::create([](const at::Tensor&) { return ModuleId(); });
  activity->name_root(kRoot, "Net");
  activity->name_child(kChild, kRoot, "fc");
  return activity;
}

TEST(ModuleActivity, ActiveModulesAreTheOpenCallsOutermostFirst) {
  const auto activity = make_activity();
  EXPECT_EQ(activity->active(), Modules{});
  EXPECT_TRUE(activity->enter(kRoot, {}).is_root_call);
  EXPECT_FALSE(activity->enter(kChild, {}).is_root_call);
  EXPECT_EQ(activity->active(), (Modules{kRoot, kChild}));
  EXPECT_TRUE(activity->leave(kChild, {}));
  EXPECT_EQ(activity->active(), Modules{kRoot});
}

TEST(ModuleActivity, ModuleWithoutANameIsNotEntered) {
  const auto activity = make_activity();
  EXPECT_FALSE(activity->enter(kStranger, {}).is_named);
  EXPECT_FALSE(activity->find_open_call(kStranger).is_open);
  EXPECT_FALSE(activity->leave(kStranger, {}));
}

TEST(ModuleActivity, ModuleThatCallsItselfIsActiveOnce) {
  const auto activity = make_activity();
  EXPECT_FALSE(activity->enter(kRoot, {}).was_open);
  EXPECT_TRUE(activity->enter(kRoot, {}).was_open);
  EXPECT_EQ(activity->active(), Modules{kRoot});
  activity->leave(kRoot, {});
  EXPECT_EQ(activity->active(), Modules{kRoot});
}

TEST(ModuleActivity, BackwardMovesThroughTheCallsThatMadeItsNodes) {
  const auto activity = make_activity();
  const at::Tensor x = torch::ones({2}, torch::requires_grad());
  activity->enter(kRoot, {});
  activity->enter(kChild, {});
  const at::Tensor inner = x * 2;
  activity->leave(kChild, {});
  const at::Tensor outer = inner + 1;
  activity->leave(kRoot, {});

  ModuleActivity::BackwardPlace place;
  const auto move_to = [&](const at::Tensor* output) {
    std::vector<ModuleMove> moves;
    activity->move(place, output != nullptr ? output->grad_fn().get() : nullptr, moves);
    return moves;
  };
  using Moves = std::vector<ModuleMove>;
  EXPECT_EQ(move_to(&outer), (Moves{{kRoot, true}}));
  EXPECT_EQ(move_to(&inner), (Moves{{kChild, true}}));
  EXPECT_EQ(move_to(nullptr), (Moves{{kChild, false}, {kRoot, false}}));
}

TEST(ModuleActivity, EachThreadHasItsOwnOpenCalls) {
  const auto activity = make_activity();
  activity->enter(kRoot, {});
  Modules in_other{kStranger};
  std::thread([&] { in_other = activity->active(); }).join();
  EXPECT_EQ(in_other, Modules{});
}

TEST(ModuleActivity, StopClosesAllCalls) {
  const auto activity = make_activity();
  activity->enter(kRoot, {});
  activity->stop();
  EXPECT_EQ(activity->active(), Modules{});
  EXPECT_FALSE(activity->leave(kRoot, {}));
}

}  // namespace
}  // namespace tidegauge
