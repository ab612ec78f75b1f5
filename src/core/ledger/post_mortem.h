// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/events/category.h"

namespace tidegauge {

/// What an allocator has said that could give no memory.
struct FailedAllocation {
  std::optional<int64_t> size_bytes;  ///< that were asked for; torch rounds those of a GPU
  std::string device;                 ///< "cpu", "cuda:0"; empty if it is not said

  friend bool operator==(const FailedAllocation&, const FailedAllocation&) = default;
};

/// Reads the message of an exception; nothing if it tells of anything else.
std::optional<FailedAllocation> read_failed_allocation(std::string_view message);

/// Live storages that are alike in all of this.
struct LiveGroup {
  std::string device;
  Category category{};
  /// That was running when they were made; of parameters and buffers, the owner; empty: none.
  std::string module;
  std::string op;     ///< that made them; empty: it was not seen
  std::string dtype;  ///< of the first tensor; empty: unknown
  std::string shape;  ///< "[2, 3]"
  std::string stack;  ///< of their allocation, the innermost frame first; may be empty
  int64_t storage_count = 0;
  int64_t size_bytes = 0;  ///< of all together

  friend bool operator==(const LiveGroup&, const LiveGroup&) = default;
};

/// The memory at the moment in which an allocation failed. A value: it keeps nothing alive.
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

/// In 80 columns: what failed, what was alive on that device by category, module and tensor, and
/// the largest things that could go.
std::string render_post_mortem(const PostMortem& post_mortem);

}  // namespace tidegauge
