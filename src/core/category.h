// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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
