// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <random>

#include "core/ledger/late_labels.h"

namespace tidegauge {
namespace {

constexpr Category kTemp = Category::Temp;
constexpr Category kGradient = Category::Gradient;

TEST(LateLabels, CorrectionCoversItsFirstEventButNotItsLast) {
  LateLabels labels;
  labels.add({5, 8, 100, 0, kTemp, kGradient});
  CategorySplit splits[4];
  for (CategorySplit& split : splits) split[kTemp] = 100;
  std::vector<StoredSplit> stored = {
      {0, 8, &splits[3]}, {0, 4, &splits[0]}, {0, 5, &splits[1]}, {0, 7, &splits[2]}};
  labels.settle(stored);
  EXPECT_EQ(splits[0][kGradient], 0);
  EXPECT_EQ(splits[1][kGradient], 100);
  EXPECT_EQ(splits[2][kGradient], 100);
  EXPECT_EQ(splits[2][kTemp], 0);
  EXPECT_EQ(splits[3][kGradient], 0);
}

TEST(LateLabels, OtherDevicesAreNotCorrected) {
  LateLabels labels;
  labels.add({1, 100, 10, 1, kTemp, kGradient});
  CategorySplit splits[3];
  for (CategorySplit& split : splits) split[kTemp] = 10;
  std::vector<StoredSplit> stored = {{0, 50, &splits[0]}, {1, 50, &splits[1]}, {2, 50, &splits[2]}};
  labels.settle(stored);
  EXPECT_EQ(splits[0][kTemp], 10);
  EXPECT_EQ(splits[1][kTemp], 0);
  EXPECT_EQ(splits[2][kTemp], 10);
}

TEST(LateLabels, SettlingEmptiesTheLog) {
  LateLabels labels;
  labels.add({1, 3, 10, 0, kTemp, kGradient});
  CategorySplit split;
  split[kTemp] = 10;
  std::vector<StoredSplit> stored = {{0, 2, &split}};
  labels.settle(stored);
  EXPECT_TRUE(labels.empty());
  labels.settle(stored);
  EXPECT_EQ(split[kGradient], 10);
  EXPECT_EQ(split[kTemp], 0);
}

TEST(LateLabels, HugeStorageRenamedManyTimesDoesNotOverflow) {
  LateLabels labels;
  CategorySplit split;
  split[kTemp] = int64_t{1} << 62;
  for (uint64_t i = 0; i < 9; ++i) {
    labels.add(
        {1, 10 + i, int64_t{1} << 62, 0, i % 2 ? kGradient : kTemp, i % 2 ? kTemp : kGradient});
  }
  std::vector<StoredSplit> stored = {{0, 2, &split}};
  labels.settle(stored);
  EXPECT_EQ(split[kGradient], int64_t{1} << 62);
  EXPECT_EQ(split[kTemp], 0);
}

TEST(LateLabels, SweepEqualsCorrectingEachSplitAlone) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    LateLabels labels;
    std::vector<LateLabels::Correction> corrections;
    for (int i = 0; i < 30; ++i) {
      const uint64_t from = random() % 50;
      corrections.push_back({from, from + 1 + random() % 20, static_cast<int64_t>(random() % 9),
                             static_cast<uint16_t>(random() % 3),
                             static_cast<Category>(random() % 4),
                             static_cast<Category>(random() % 4)});
      labels.add(corrections.back());
    }
    std::vector<CategorySplit> settled(40);
    std::vector<StoredSplit> stored;
    for (CategorySplit& split : settled) {
      stored.push_back({static_cast<uint16_t>(random() % 3), random() % 80, &split});
    }
    labels.settle(stored);
    for (const StoredSplit& one : stored) {
      CategorySplit expected;
      for (const auto& c : corrections) {
        if (c.device_slot != one.device_slot) continue;
        if (one.sequence < c.from_sequence || one.sequence >= c.to_sequence) continue;
        expected[c.from] -= c.size_bytes;
        expected[c.to] += c.size_bytes;
      }
      ASSERT_EQ(*one.split, expected) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace tidegauge
