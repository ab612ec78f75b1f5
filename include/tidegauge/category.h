// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidegauge {

/// What a byte is used for. Every live storage has exactly one category at any instant; the
/// Labeller alone decides which. The numbers go into trace files: append, never renumber.
enum class Category : uint8_t {
  Parameter,
  Buffer,
  Gradient,
  Activation,
  Temp,
  Optstate,
  Other,
  ShardedParam,
  UnshardedParam,
  ShardedGrad,
  UnshardedGrad,
  AllGather,
  ReduceScatter,
  Inputs,
  StepTemp,          ///< temporaries of an optimizer step, as opposed to its states
  AllReduce,         ///< HSDP: all-reduce buffers and partial reduce outputs
  PostForwardShard,  ///< shards kept by an integer reshard_after_forward
  Untracked,         ///< seen by the allocator only: workspaces, buffers of collectives
  SavedActivation,   ///< an activation that the autograd graph alone kept alive, for backward
};

inline constexpr size_t kCategoryCount = 19;

/// The one spelling, as in reports and JSON ("Sharded Param").
std::string_view to_string(Category category);

}  // namespace tidegauge
