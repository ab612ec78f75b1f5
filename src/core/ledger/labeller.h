// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/events/category.h"
#include "core/events/event.h"
#include "tidegauge/mem_category.h"

/// The Labeller: the only code that turns facts into categories. Live tracking and replay both use
/// it, so this file alone explains every label.
///
/// Note [Labels since birth]
/// Some labels come late: `mm` makes a gradient, but only AccumulateGrad shows that it is one. So a
/// relabel says since when it applies. For every instant, the last label that covers it wins:
///
///       born as Temp        relabel to Optstate, now     relabel to Gradient, since birth
///   ----[===================[============================[===========>
///       Temp                Optstate                      Gradient       as known at the time
///       Gradient            Gradient                      Gradient       as read afterwards
///
/// All splits that are stored in between (peaks and module snapshots) are read the second way. A
/// Snapshot that was returned to a caller is a value and does not change.
namespace tidegauge {

/// The first label. `facts` are BirthFact bits; the first line that applies wins:
///   from the allocator alone     -> Untracked
///   in an optimizer step         -> StepTemp
///   in backward, not recomputing -> Temp
///   else                         -> Activation
constexpr Category category_at_birth(uint8_t facts) {
  if (facts & kFromAllocator) return Category::Untracked;
  if (facts & kInOptimizerStep) return Category::StepTemp;
  if ((facts & kInBackward) && !(facts & kInRecompute)) return Category::Temp;
  return Category::Activation;
}

Category category_of(Role role);

/// The categories of torch.distributed._tools.fsdp2_mem_tracker, in the order of its enum.
enum class FsdpCategory : uint8_t {
  ShardedParam,
  UnshardedParam,
  Buffer,
  ShardedGrad,
  UnshardedGrad,
  Activation,
  Temp,
  AllGather,
  ReduceScatter,
  OptState,
  Inputs,
};
inline constexpr size_t kFsdpCategoryCount = 11;

/// The spelling of torch ("OptState" here, but "Optstate" for MemCategory).
std::string_view to_string(FsdpCategory category);

/// The category of the drop-in trackers that counts these bytes: columns of
/// tidegauge/category_table.inc.
MemCategory to_mem_category(Category category);
FsdpCategory to_fsdp_category(Category category);

using MemSplit = std::array<int64_t, kMemCategoryCount>;
using FsdpSplit = std::array<int64_t, kFsdpCategoryCount>;

/// The same bytes in the drop-in categories; totals stay equal.
MemSplit to_mem_split(const CategorySplit& split);
FsdpSplit to_fsdp_split(const CategorySplit& split);

}  // namespace tidegauge
