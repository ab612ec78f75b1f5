// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/events/category.h"

namespace tidegauge {

/// A request that an allocator could not serve.
struct FailedAllocation {
  std::optional<int64_t> size_bytes;  ///< requested; torch rounds them in messages about a GPU
  std::string device;                 ///< "cpu", "cuda:0"; empty if unknown

  friend bool operator==(const FailedAllocation&, const FailedAllocation&) = default;
};

/// Live storages with the same device, category, module, op, dtype, shape and stack.
struct LiveGroup {
  std::string device;
  Category category{};
  /// The module that ran when they were made; the owner of parameters and buffers; empty: none.
  std::string module;
  std::string op;     ///< that made them; empty: unknown
  std::string dtype;  ///< of the first tensor; empty: unknown
  std::string shape;  ///< "[2, 3]"
  std::string stack;  ///< of their allocation, the innermost frame first; may be empty
  int64_t storage_count = 0;
  int64_t size_bytes = 0;  ///< of the whole group

  friend bool operator==(const LiveGroup&, const LiveGroup&) = default;
};

/// The live memory at the moment when an allocation failed. A value: it keeps nothing alive.
struct PostMortem {
  uint64_t sequence = 0;  ///< of the event AllocationFailed
  int64_t time_ns = 0;
  uint32_t step = 0;
  FailedAllocation failed;
  std::string op;      ///< empty: none ran
  std::string module;  ///< likewise
  std::string message;
  std::vector<LiveGroup> live;  ///< the largest first

  friend bool operator==(const PostMortem&, const PostMortem&) = default;
};

int64_t live_bytes(const PostMortem& post_mortem);

}  // namespace tidegauge
