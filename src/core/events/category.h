// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tidegauge/category.h"

namespace tidegauge {

/// A row of tidegauge/category_table.inc, which explains the columns.
struct CategoryRow {
  std::string_view name;
  int place;
  std::string_view colour;
  std::string_view unit_column;
  std::string_view description;
  std::string_view advice;
};
const CategoryRow& row_of(Category category);

/// The inverse of to_string; none for any other text.
std::optional<Category> parse_category(std::string_view text);

/// Bytes by category. In a split that the Ledger returns, no entry is negative.
struct CategorySplit {
  std::array<int64_t, kCategoryCount> bytes{};

  int64_t& operator[](Category category) { return bytes[static_cast<size_t>(category)]; }
  int64_t operator[](Category category) const { return bytes[static_cast<size_t>(category)]; }

  int64_t total() const {
    int64_t sum = 0;
    for (const int64_t b : bytes) sum += b;
    return sum;
  }

  friend bool operator==(const CategorySplit&, const CategorySplit&) = default;
};

}  // namespace tidegauge
