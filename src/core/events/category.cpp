// SPDX-License-Identifier: BSD-3-Clause
#include "core/events/category.h"

namespace tidegauge {
namespace {

constexpr std::array<std::string_view, kCategoryCount> kNames = {
    "Parameter",
    "Buffer",
    "Gradient",
    "Activation",
    "Temp",
    "Optstate",
    "Other",
    "Sharded Param",
    "Unsharded Param",
    "Sharded Grad",
    "Unsharded Grad",
    "All Gather",
    "Reduce Scatter",
    "Inputs",
    "Step Temp",
    "All Reduce",
    "Post-Forward Shard",
    "Untracked",
    "Saved Activation",
};
static_assert(static_cast<size_t>(Category::SavedActivation) + 1 == kCategoryCount);

}  // namespace

std::string_view to_string(Category category) {
  const auto index = static_cast<size_t>(category);
  return index < kCategoryCount ? kNames[index] : "unknown category";
}

std::optional<Category> parse_category(std::string_view text) {
  for (size_t i = 0; i < kCategoryCount; ++i) {
    if (kNames[i] == text) return static_cast<Category>(i);
  }
  return std::nullopt;
}

}  // namespace tidegauge
