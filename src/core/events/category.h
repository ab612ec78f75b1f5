// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tidegauge/category.h"

namespace tidegauge {

/// The inverse of to_string; nothing for any other text.
std::optional<Category> parse_category(std::string_view text);

/// Bytes by category. A split that the Ledger hands out is never negative anywhere.
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
