// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <string>

#include "core/util/utf8.h"

namespace tidegauge {
namespace {

TEST(Utf8, InvalidBytesAreReplacedOneByOne) {
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(to_valid_utf8("plain \xE2\x82\xAC \xF0\x9F\x8C\x8A"),
            "plain \xE2\x82\xAC \xF0\x9F\x8C\x8A");
  EXPECT_EQ(to_valid_utf8("\x80"), replaced);                 // a continuation byte alone
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), replaced + replaced);  // an overlong form
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"),
            replaced + replaced + replaced);  // half of a surrogate pair
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80").size(), 4 * replaced.size());  // beyond U+10FFFF
  EXPECT_EQ(to_valid_utf8("a\xE2\x82"), "a" + replaced + replaced);          // truncated
}

}  // namespace
}  // namespace tidegauge
