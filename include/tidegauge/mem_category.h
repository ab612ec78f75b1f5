// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidegauge {

/// What MemTracker says a byte is used for: the categories of
/// torch.distributed._tools.mem_tracker, in the order of its enum.
enum class MemCategory : uint8_t {
  Parameter,
  Buffer,
  Gradient,
  Activation,
  Temp,
  Optstate,
  Other,
};
inline constexpr size_t kMemCategoryCount = 7;

/// The spelling of torch ("Optstate").
std::string_view to_string(MemCategory category);

}  // namespace tidegauge
