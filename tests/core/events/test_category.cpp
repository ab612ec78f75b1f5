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

TEST(Category, EveryRowOfTheTableIsComplete) {
  std::set<int> places;
  std::set<std::string_view> colours;
  for (size_t i = 0; i < kCategoryCount; ++i) {
    const CategoryRow& row = row_of(static_cast<Category>(i));
    places.insert(row.place);
    colours.insert(row.colour);
    EXPECT_EQ(row.colour.size(), 7) << row.name;
    EXPECT_EQ(row.colour.front(), '#') << row.name;
    EXPECT_FALSE(row.description.empty()) << row.name;
    const std::set<std::string_view> columns{"", "sharded", "whole", "gathered", "reduced"};
    EXPECT_TRUE(columns.contains(row.unit_column)) << row.name;
  }
  EXPECT_EQ(places.size(), kCategoryCount);
  EXPECT_EQ(colours.size(), kCategoryCount);
}

TEST(Category, NumbersInTraceFilesDoNotChange) {
  EXPECT_EQ(static_cast<int>(Category::Parameter), 0);
  EXPECT_EQ(static_cast<int>(Category::Other), 6);
  EXPECT_EQ(static_cast<int>(Category::Inputs), 13);
  EXPECT_EQ(static_cast<int>(Category::Untracked), 17);
  EXPECT_EQ(static_cast<int>(Category::SavedActivation), 18);
}

TEST(Category, NamesAreThoseOfTheTrackers) {
  EXPECT_EQ(to_string(Category::Optstate), "Optstate");
  EXPECT_EQ(to_string(Category::UnshardedParam), "Unsharded Param");
  EXPECT_EQ(to_string(Category::ReduceScatter), "Reduce Scatter");
}

TEST(Category, UnknownTextDoesNotParse) {
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
