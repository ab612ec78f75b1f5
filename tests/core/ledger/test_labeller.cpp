// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <numeric>

#include "core/ledger/labeller.h"

namespace tidegauge {
namespace {

TEST(Labeller, BirthFactsDecideTheFirstLabel) {
  struct Row {
    uint8_t facts;
    Category category;
  };
  const Row rows[] = {
      {0, Category::Activation},
      {kInBackward, Category::Temp},
      {kInRecompute, Category::Activation},
      {kInBackward | kInRecompute, Category::Activation},
      {kInOptimizerStep, Category::StepTemp},
      {kInOptimizerStep | kInBackward, Category::StepTemp},  // LBFGS: backward inside the step
      {kInOptimizerStep | kInBackward | kInRecompute, Category::StepTemp},
      {kFromAllocator, Category::Untracked},
      {kFromAllocator | kInBackward, Category::Untracked},
      {kFromAllocator | kInOptimizerStep, Category::Untracked},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(category_at_birth(row.facts), row.category) << int{row.facts};
  }
}

TEST(Labeller, EveryRoleHasItsCategory) {
  struct Row {
    Role role;
    Category category;
  };
  const Row rows[] = {
      {Role::IsParameter, Category::Parameter},
      {Role::IsBuffer, Category::Buffer},
      {Role::IsGradient, Category::Gradient},
      {Role::IsOptimizerState, Category::Optstate},
      {Role::IsExternal, Category::Other},
      {Role::IsInput, Category::Inputs},
      {Role::IsActivation, Category::Activation},
      {Role::IsTemp, Category::Temp},
      {Role::IsShardedParam, Category::ShardedParam},
      {Role::IsUnshardedParam, Category::UnshardedParam},
      {Role::IsShardedGrad, Category::ShardedGrad},
      {Role::IsUnshardedGrad, Category::UnshardedGrad},
      {Role::IsAllGatherBuffer, Category::AllGather},
      {Role::IsReduceScatterBuffer, Category::ReduceScatter},
      {Role::IsAllReduceBuffer, Category::AllReduce},
      {Role::IsPostForwardShard, Category::PostForwardShard},
      {Role::IsUntracked, Category::Untracked},
      {Role::IsSavedForBackward, Category::SavedActivation},
  };
  EXPECT_EQ(std::size(rows), kRoleCount);
  for (const Row& row : rows) EXPECT_EQ(category_of(row.role), row.category);
}

TEST(Labeller, EveryCategoryHasItsDropInName) {
  struct Row {
    Category category;
    const char* mem;
    const char* fsdp;
  };
  const Row rows[] = {
      {Category::Parameter, "Parameter", "Unsharded Param"},
      {Category::Buffer, "Buffer", "Buffer"},
      {Category::Gradient, "Gradient", "Unsharded Grad"},
      {Category::Activation, "Activation", "Activation"},
      {Category::Temp, "Temp", "Temp"},
      {Category::Optstate, "Optstate", "OptState"},
      {Category::Other, "Other", "Inputs"},
      {Category::ShardedParam, "Parameter", "Sharded Param"},
      {Category::UnshardedParam, "Parameter", "Unsharded Param"},
      {Category::ShardedGrad, "Gradient", "Sharded Grad"},
      {Category::UnshardedGrad, "Gradient", "Unsharded Grad"},
      {Category::AllGather, "Temp", "All Gather"},
      {Category::ReduceScatter, "Temp", "Reduce Scatter"},
      {Category::Inputs, "Other", "Inputs"},
      {Category::StepTemp, "Optstate", "OptState"},
      {Category::AllReduce, "Temp", "Reduce Scatter"},
      {Category::PostForwardShard, "Parameter", "Sharded Param"},
      {Category::Untracked, "Other", "Temp"},
      {Category::SavedActivation, "Activation", "Activation"},
  };
  EXPECT_EQ(std::size(rows), kCategoryCount);
  for (const Row& row : rows) {
    EXPECT_EQ(to_string(to_mem_category(row.category)), row.mem);
    EXPECT_EQ(to_string(to_fsdp_category(row.category)), row.fsdp);
  }
}

TEST(Labeller, DropInSplitsKeepTheTotal) {
  CategorySplit split;
  for (size_t i = 0; i < kCategoryCount; ++i) split.bytes[i] = int64_t{1} << i;
  const MemSplit mem = to_mem_split(split);
  const FsdpSplit fsdp = to_fsdp_split(split);
  EXPECT_EQ(std::accumulate(mem.begin(), mem.end(), int64_t{0}), split.total());
  EXPECT_EQ(std::accumulate(fsdp.begin(), fsdp.end(), int64_t{0}), split.total());
  EXPECT_EQ(mem[static_cast<size_t>(MemCategory::Optstate)],
            split[Category::Optstate] + split[Category::StepTemp]);
  EXPECT_EQ(fsdp[static_cast<size_t>(FsdpCategory::ReduceScatter)],
            split[Category::ReduceScatter] + split[Category::AllReduce]);
}

}  // namespace
}  // namespace tidegauge
