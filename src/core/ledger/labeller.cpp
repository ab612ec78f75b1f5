// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/labeller.h"

namespace tidegauge {
namespace {

// Indexed by Role.
constexpr std::array<Category, kRoleCount> kCategoryOfRole = {
    Category::Parameter,        Category::Buffer,        Category::Gradient,
    Category::Optstate,         Category::Other,         Category::Inputs,
    Category::Activation,       Category::Temp,          Category::ShardedParam,
    Category::UnshardedParam,   Category::ShardedGrad,   Category::UnshardedGrad,
    Category::AllGather,        Category::ReduceScatter, Category::AllReduce,
    Category::PostForwardShard, Category::Untracked,     Category::SavedActivation,
};
static_assert(static_cast<size_t>(Role::IsSavedForBackward) + 1 == kRoleCount);

struct View {
  MemCategory mem;
  FsdpCategory fsdp;
};

constexpr std::array<View, kCategoryCount> kViews = {{
#define TIDEGAUGE_CATEGORY(enumerator, name, mem, fsdp, ...) {MemCategory::mem, FsdpCategory::fsdp},
#include "tidegauge/category_table.inc"
#undef TIDEGAUGE_CATEGORY
}};

constexpr std::array<std::string_view, kMemCategoryCount> kMemNames = {
    "Parameter", "Buffer", "Gradient", "Activation", "Temp", "Optstate", "Other",
};
constexpr std::array<std::string_view, kFsdpCategoryCount> kFsdpNames = {
    "Sharded Param",  "Unsharded Param", "Buffer", "Sharded Grad",
    "Unsharded Grad", "Activation",      "Temp",   "All Gather",
    "Reduce Scatter", "OptState",        "Inputs",
};

}  // namespace

Category category_of(Role role) { return kCategoryOfRole[static_cast<size_t>(role)]; }

std::string_view to_string(MemCategory category) {
  return kMemNames[static_cast<size_t>(category)];
}

std::string_view to_string(FsdpCategory category) {
  return kFsdpNames[static_cast<size_t>(category)];
}

MemCategory to_mem_category(Category category) { return kViews[static_cast<size_t>(category)].mem; }

FsdpCategory to_fsdp_category(Category category) {
  return kViews[static_cast<size_t>(category)].fsdp;
}

MemSplit to_mem_split(const CategorySplit& split) {
  MemSplit folded{};
  for (size_t i = 0; i < kCategoryCount; ++i) {
    folded[static_cast<size_t>(kViews[i].mem)] += split.bytes[i];
  }
  return folded;
}

FsdpSplit to_fsdp_split(const CategorySplit& split) {
  FsdpSplit folded{};
  for (size_t i = 0; i < kCategoryCount; ++i) {
    folded[static_cast<size_t>(kViews[i].fsdp)] += split.bytes[i];
  }
  return folded;
}

}  // namespace tidegauge
