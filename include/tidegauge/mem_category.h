// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidegauge {

/// The categories of MemTracker: those of torch.distributed._tools.mem_tracker, in the order of its
/// enum.
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

/// torch's spelling ("Optstate").
std::string_view to_string(MemCategory category);

}  // namespace tidegauge
