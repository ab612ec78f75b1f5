// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace tidegauge {

/// The caching allocator of CUDA allocates multiples of this. All code that rounds like it uses
/// this constant.
inline constexpr int64_t kDeviceBlockBytes = 512;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The unit in which torch in this process would allocate on a CUDA device: kDeviceBlockBytes, or 1
/// byte if PYTORCH_NO_CUDA_MEMORY_CACHING disables the cache.
inline int64_t device_unit_bytes() {
  static const bool has_cache = [] {
    const char* without_cache = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    return without_cache == nullptr ||
           std::string_view(without_cache).find_first_not_of('0') == std::string_view::npos;
  }();
  return has_cache ? kDeviceBlockBytes : 1;
}

}  // namespace tidegauge
