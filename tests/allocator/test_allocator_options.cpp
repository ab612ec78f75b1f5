// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "allocator/allocator_options.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

TEST(AllocatorOptions, PoliciesForDeferredFreesHaveNames) {
  EXPECT_EQ(parse_deferred_frees("low"), DeferredFrees::AtNextMalloc);
  EXPECT_EQ(parse_deferred_frees("high"), DeferredFrees::AtSync);
  EXPECT_EQ(parse_deferred_frees("recorded"), DeferredFrees::ByCaller);
}

TEST(AllocatorOptions, OtherNamesOfPoliciesAreErrors) {
  EXPECT_THROW(parse_deferred_frees(""), UsageError);
}

}  // namespace
}  // namespace tidegauge
