// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/events/category.h"
#include "core/events/device.h"

namespace tidegauge {
namespace {

TEST(Category, EveryNameIsDistinctAndParsesBack) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kCategoryCount; ++i) {
    const auto category = static_cast<Category>(i);
    names.insert(to_string(category));
    EXPECT_EQ(parse_category(to_string(category)), category);
  }
  EXPECT_EQ(names.size(), kCategoryCount);
}

TEST(Category, NamesAreThoseOfTheTrackers) {
  EXPECT_EQ(to_string(Category::Optstate), "Optstate");
  EXPECT_EQ(to_string(Category::UnshardedParam), "Unsharded Param");
  EXPECT_EQ(to_string(Category::ReduceScatter), "Reduce Scatter");
}

TEST(Category, OtherTextIsNoCategory) {
  EXPECT_EQ(parse_category("parameter"), std::nullopt);
  EXPECT_EQ(parse_category(""), std::nullopt);
  EXPECT_EQ(to_string(static_cast<Category>(200)), "unknown category");
}

TEST(CategorySplit, TotalIsTheSumOfAllCategories) {
  CategorySplit split;
  int64_t expected = 0;
  for (size_t i = 0; i < kCategoryCount; ++i) {
    split[static_cast<Category>(i)] = int64_t{1} << i;
    expected += int64_t{1} << i;
  }
  EXPECT_EQ(split.total(), expected);
}

TEST(Device, PrintsAsTorchDoes) {
  EXPECT_EQ(to_string(kCpu), "cpu");
  EXPECT_EQ(to_string(cuda(0)), "cuda:0");
  EXPECT_EQ(to_string(kMeta), "meta");
  EXPECT_EQ(to_string(Device{20, 1}), "privateuseone:1");
  EXPECT_EQ(to_string(Device{42, 0}), "type42:0");
  EXPECT_EQ(to_string(Device{-3, -1}), "type-3");
}

}  // namespace
}  // namespace tidegauge
