// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "core/util/byte_text.h"

namespace tidegauge {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kGiB = 1 << 30;

TEST(RenderBytes, SizesBelowOneKibibyteAreExact) {
  EXPECT_EQ(render_bytes(0), "0 B");
  EXPECT_EQ(render_bytes(1), "1 B");
  EXPECT_EQ(render_bytes(1023), "1023 B");
}

TEST(RenderBytes, LargerSizesHaveThreeOrFourDigits) {
  EXPECT_EQ(render_bytes(1024), "1.00 KiB");
  EXPECT_EQ(render_bytes(3 * kKiB / 2), "1.50 KiB");
  EXPECT_EQ(render_bytes(234 * kGiB / 10), "23.4 GiB");
  EXPECT_EQ(render_bytes(512 * kMiB), "512 MiB");
  EXPECT_EQ(render_bytes(1023 * kMiB), "1023 MiB");
}

TEST(RenderBytes, RoundingNeverAddsADigit) {
  EXPECT_EQ(render_bytes(9995 * kKiB / 1000 + 1), "10.0 KiB");
  EXPECT_EQ(render_bytes(9995 * kKiB / 100 + 1), "100 KiB");
  EXPECT_EQ(render_bytes(kMiB - 1), "1.00 MiB");
}

TEST(RenderBytes, NegativeSizesHaveASign) {
  EXPECT_EQ(render_bytes(-3), "-3 B");
  EXPECT_EQ(render_bytes(-3 * kKiB / 2), "-1.50 KiB");
}

TEST(RenderBytes, LargestSizeIsInTebibytes) {
  EXPECT_EQ(render_bytes(std::numeric_limits<int64_t>::max()), "8388608 TiB");
}

}  // namespace
}  // namespace tidegauge
