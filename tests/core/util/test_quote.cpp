// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "core/util/quote.h"

namespace tidegauge {
namespace {

TEST(Quote, IsOneShortLine) {
  EXPECT_EQ(quote("backend:native"), "'backend:native'");
  EXPECT_EQ(quote("a\nb\x1b[31m"), "'a?b?[31m'");
  EXPECT_EQ(short_line("\xff"), "\xEF\xBF\xBD");
  EXPECT_EQ(quote(std::string(201, 'x')), "'" + std::string(200, 'x') + "...'");
}

}  // namespace
}  // namespace tidegauge
