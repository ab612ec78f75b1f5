// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidegauge {

/// What a byte is used for. Every live storage has exactly one category at any instant, which only
/// the Labeller decides. category_table.inc describes all categories.
enum class Category : uint8_t {
#define TIDEGAUGE_CATEGORY(enumerator, ...) enumerator,
#include "tidegauge/category_table.inc"
#undef TIDEGAUGE_CATEGORY
};

inline constexpr size_t kCategoryCount = 0
// NOLINTNEXTLINE(bugprone-macro-parentheses): one term of the sum
#define TIDEGAUGE_CATEGORY(...) +1
#include "tidegauge/category_table.inc"
#undef TIDEGAUGE_CATEGORY
    ;

/// The name that reports and JSON use ("Sharded Param").
std::string_view to_string(Category category);

}  // namespace tidegauge
