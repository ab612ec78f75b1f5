// SPDX-License-Identifier: BSD-3-Clause
#include "core/events/category.h"

namespace tidegauge {
namespace {

constexpr std::array<CategoryRow, kCategoryCount> kRows = {{
#define TIDEGAUGE_CATEGORY(enumerator, name, mem, fsdp, ...) {name, __VA_ARGS__},
#include "tidegauge/category_table.inc"
#undef TIDEGAUGE_CATEGORY
}};

}  // namespace

const CategoryRow& row_of(Category category) { return kRows[static_cast<size_t>(category)]; }

std::string_view to_string(Category category) {
  return static_cast<size_t>(category) < kCategoryCount ? row_of(category).name
                                                        : "unknown category";
}

std::optional<Category> parse_category(std::string_view text) {
  for (size_t i = 0; i < kCategoryCount; ++i) {
    if (kRows[i].name == text) return static_cast<Category>(i);
  }
  return std::nullopt;
}

}  // namespace tidegauge
