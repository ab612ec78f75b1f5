// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "allocator/rounding.h"

namespace tidegauge {
namespace {

int64_t rounded(int64_t size_bytes, const std::string& divisions = "") {
  return round_request(
      size_bytes,
      parse_alloc_config(divisions.empty() ? "" : "roundup_power2_divisions:" + divisions));
}

TEST(Rounding, MultiplesOf512) {
  EXPECT_EQ(rounded(1), 512);
  EXPECT_EQ(rounded(511), 512);
  EXPECT_EQ(rounded(512), 512);
  EXPECT_EQ(rounded(513), 1024);
  EXPECT_EQ(rounded(kMiB), kMiB);
  EXPECT_EQ(rounded(kMaxRequestBytes), int64_t{1} << 60);
}

TEST(Rounding, PowersOfTwoInDivisions) {
  EXPECT_EQ(rounded(84 * kMiB, "4"), 96 * kMiB);  // steps of 64 / 4
  EXPECT_EQ(rounded(84 * kMiB, "8"), 88 * kMiB);
  EXPECT_EQ(rounded(84 * kMiB, "1"), 84 * kMiB);
  EXPECT_EQ(rounded(84 * kMiB, "[64:8,128:2,256:2,512:2,1024:1,>:1]"), 88 * kMiB);
  EXPECT_EQ(rounded(400 * kMiB, "[64:8,128:2,256:2,512:2,1024:1,>:1]"), 512 * kMiB);
  EXPECT_EQ(rounded(64 * kMiB, "4"), 64 * kMiB);
  EXPECT_EQ(rounded(64 * kMiB + 1, "4"), 80 * kMiB);
  EXPECT_EQ(rounded(127 * kMiB, "4"), 128 * kMiB);
}

TEST(Rounding, SmallRequestsAreNotCutBelow512) {
  EXPECT_EQ(rounded(1200, "4"), 1536);  // 1200 <= 4 * 512
  EXPECT_EQ(rounded(2048, "4"), 2048);
  EXPECT_EQ(rounded(2049, "4"), 2560);  // steps of 2048 / 4
  EXPECT_EQ(rounded(5000, "4"), 5120);  // steps of 4096 / 4
  EXPECT_EQ(rounded(3 * kMiB, "1152921504606846976"), 3 * kMiB);
}

TEST(Rounding, SegmentsBySize) {
  const AllocConfig config;
  EXPECT_EQ(segment_bytes(512, config), 2 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB, config), 2 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB + 512, config), 20 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB - 512, config), 20 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB, config), 10 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB + 512, config), 12 * kMiB);
  EXPECT_EQ(segment_bytes(2 * kMiB, parse_alloc_config("large_segment_size_mb:32")), 32 * kMiB);
}

}  // namespace
}  // namespace tidegauge
