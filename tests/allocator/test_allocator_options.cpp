// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "allocator/allocator_options.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

TEST(AllocatorOptions, TieRulesHaveNames) {
  EXPECT_EQ(parse_tie_rule("address"), TieRule::Address);
  EXPECT_EQ(parse_tie_rule("counter"), TieRule::SegmentCounter);
  EXPECT_EQ(parse_tie_rule("private-counter"), TieRule::PrivateCounter);
}

TEST(AllocatorOptions, PoliciesForDeferredFreesHaveNames) {
  EXPECT_EQ(parse_deferred_frees("low"), DeferredFrees::AtNextMalloc);
  EXPECT_EQ(parse_deferred_frees("high"), DeferredFrees::AtSync);
  EXPECT_EQ(parse_deferred_frees("recorded"), DeferredFrees::ByCaller);
}

TEST(AllocatorOptions, OtherNamesAreErrors) {
  EXPECT_THROW(parse_tie_rule("Address"), UsageError);
  EXPECT_THROW(parse_deferred_frees(""), UsageError);
}

}  // namespace
}  // namespace tidegauge
