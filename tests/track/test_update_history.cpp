// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "track/update_history.h"

namespace tidegauge {
namespace {

using Update = UpdateHistory::Update;

TEST(UpdateHistory, CallThatChangesNoParameterIsNoStep) {
  UpdateHistory history;
  EXPECT_EQ(history.add_call({3, 4}, {3, 4}), Update::None);
}

TEST(UpdateHistory, CallsForOtherParametersAreOneStep) {
  UpdateHistory history;
  EXPECT_EQ(history.add_call({0, 0, 0}, {1, 0, 0}), Update::NewStep);
  EXPECT_EQ(history.add_call({1, 0, 0}, {1, 1, 0}), Update::Further);
  EXPECT_EQ(history.add_call({1, 1, 0}, {1, 1, 1}), Update::Further);
}

TEST(UpdateHistory, ParameterThatChangesAgainBeginsAStep) {
  UpdateHistory history;
  history.add_call({0, 0}, {1, 0});
  history.add_call({1, 0}, {1, 1});
  EXPECT_EQ(history.add_call({1, 1}, {2, 1}), Update::NewStep);
  EXPECT_EQ(history.add_call({2, 1}, {2, 2}), Update::Further);
}

TEST(UpdateHistory, FirstCallAfterAnEagerStepBeginsAStep) {
  UpdateHistory history;
  history.add_call({0, 0}, {1, 0});
  history.clear();
  EXPECT_EQ(history.add_call({1, 0}, {1, 1}), Update::NewStep);
}

TEST(UpdateHistory, CallThatAddsParametersIsIgnored) {
  UpdateHistory history;
  EXPECT_EQ(history.add_call({0}, {1, 0}), Update::None);
  EXPECT_EQ(history.add_call({1, 0}, {2, 0}), Update::NewStep);
}

}  // namespace
}  // namespace tidegauge
