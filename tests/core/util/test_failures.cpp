// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <stdexcept>

#include "core/util/failures.h"

namespace tidegauge {
namespace {

TEST(Failures, CountsAllAndKeepsTheFirstText) {
  Failures failures;
  EXPECT_EQ(failures.count(), 0);
  EXPECT_EQ(failures.first(), "");
  failures.note("entering a module", "no name");
  failures.note("", "another");
  EXPECT_EQ(failures.count(), 2);
  EXPECT_EQ(failures.first(), "entering a module: no name");
}

TEST(Failures, GuardNotesEveryKindOfException) {
  Failures failures;
  EXPECT_TRUE(failures.guard("a", [] {}));
  EXPECT_FALSE(failures.guard("b", [] { throw std::runtime_error("lost"); }));
  EXPECT_FALSE(failures.guard("c", [] { throw 3; }));
  EXPECT_EQ(failures.count(), 2);
  EXPECT_EQ(failures.first(), "b: lost");
}

}  // namespace
}  // namespace tidegauge
