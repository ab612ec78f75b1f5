// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "allocator/tie_rule.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

TEST(TieRule, EveryRuleHasAName) {
  EXPECT_EQ(parse_tie_rule("address"), TieRule::Address);
  EXPECT_EQ(parse_tie_rule("counter"), TieRule::SegmentCounter);
  EXPECT_EQ(parse_tie_rule("private-counter"), TieRule::PrivateCounter);
  for (const TieRuleRow& row : tie_rules()) EXPECT_EQ(to_string(row.rule), row.name);
  EXPECT_THROW(parse_tie_rule("Address"), UsageError);
}

TEST(TieRule, FollowsTheVersionOfTorch) {
  for (const char* version : {"1.13.1", "2.10.0+cu128", "2.11.0", "2.9"}) {
    EXPECT_EQ(find_tie_rule(version), TieRule::Address) << version;
  }
  EXPECT_EQ(find_tie_rule("2.12.1"), TieRule::PrivateCounter);
  for (const char* version : {"2.13.0+cpu", "2.15.0", "2.20.0", "3.0.0a0"}) {
    EXPECT_EQ(find_tie_rule(version), TieRule::SegmentCounter) << version;
  }
}

TEST(TieRule, OfAnUnreadableVersionIsThatOfTheNewest) {
  for (const char* version : {"", "2", "2.", "git", ".12", "99999999999.1"}) {
    EXPECT_EQ(find_tie_rule(version), TieRule::SegmentCounter) << version;
  }
}

}  // namespace
}  // namespace tidegauge
