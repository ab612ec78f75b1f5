// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "core/util/failures.h"

namespace tidegauge {
namespace {

TEST(Failures, CountsAllAndKeepsTheFirstText) {
  Failures failures;
  EXPECT_EQ(failures.count(), 0);
  EXPECT_EQ(failures.first(), "");
  failures.note("entering a module", "no name\nand more");
  failures.note("leaving a module", "another");
  EXPECT_EQ(failures.count(), 2);
  EXPECT_EQ(failures.first(), "entering a module: no name");
}

TEST(Failures, LongAndInvalidTextsAreCut) {
  Failures failures;
  failures.note("x", std::string(1000, 'a') + "\xff");
  EXPECT_EQ(failures.first(), "x: " + std::string(300, 'a'));
  Failures others;
  others.note("x", "\xff!");
  EXPECT_NE(others.first().find('!'), std::string::npos);
  EXPECT_EQ(others.first().find('\xff'), std::string::npos);
}

TEST(Failures, EveryKindOfExceptionIsContained) {
  Failures failures;
  contain(failures, "a", [] {});
  EXPECT_EQ(failures.count(), 0);
  contain(failures, "b", [] { throw std::runtime_error("lost"); });
  // NOLINTNEXTLINE(bugprone-std-exception-baseclass): programs may throw anything
  contain(failures, "c", [] { throw 3; });
  EXPECT_EQ(failures.count(), 2);
  EXPECT_EQ(failures.first(), "b: lost");
}

}  // namespace
}  // namespace tidegauge
