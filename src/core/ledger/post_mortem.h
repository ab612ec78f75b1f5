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
  std::optional<int64_t> size_bytes;  ///< requested bytes; torch's messages about a GPU round them
  std::string device;                 ///< "cpu", "cuda:0"; empty if unknown

  friend bool operator==(const FailedAllocation&, const FailedAllocation&) = default;
};

/// Live storages with the same device, category, module, op, dtype, shape and stack.
struct LiveGroup {
  std::string device;
  Category category{};
  /// The module that ran when they were made; the owner of parameters and buffers; empty: none.
  std::string module;
  std::string op;     ///< the op that made them; empty: unknown
  std::string dtype;  ///< the dtype of the first tensor; empty: unknown
  std::string shape;  ///< "[2, 3]"
  std::string stack;  ///< the stack of their allocation, innermost frame first; may be empty
  int64_t storage_count = 0;
  int64_t size_bytes = 0;  ///< bytes of the whole group

  friend bool operator==(const LiveGroup&, const LiveGroup&) = default;
};

/// The live memory when an allocation failed. A value: it keeps no tensor alive.
struct PostMortem {
  uint64_t sequence = 0;  ///< sequence number of the AllocationFailed
  int64_t time_ns = 0;
  uint32_t step = 0;
  FailedAllocation failed;
  std::string op;      ///< the running op; empty: none
  std::string module;  ///< the running module; empty: none
  std::string message;
  std::vector<LiveGroup> live;  ///< largest group first

  friend bool operator==(const PostMortem&, const PostMortem&) = default;
};

int64_t live_bytes(const PostMortem& post_mortem);

}  // namespace tidegauge
