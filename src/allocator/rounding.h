// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "allocator/alloc_config.h"
#include "core/util/device_blocks.h"

namespace tidegauge {

inline constexpr int64_t kSmallLimitBytes = kMiB;  ///< larger requests use the large pool
inline constexpr int64_t kSmallSegmentBytes = 2 * kMiB;
inline constexpr int64_t kMinLargeBytes = 10 * kMiB;  ///< smaller requests share a segment
inline constexpr int64_t kLargeRoundingBytes = 2 * kMiB;
/// torch rejects larger requests.
inline constexpr int64_t kMaxRequestBytes = (int64_t{1} << 60) - 1;

/// The size of the block for a request: a multiple of kDeviceBlockBytes, or of a power of two /
/// divisions.
int64_t round_request(int64_t requested_bytes, const AllocConfig& config);

/// The size of a new segment for a rounded request that no cached block can serve.
int64_t segment_bytes(int64_t rounded_bytes, const AllocConfig& config);

constexpr bool is_small_request(int64_t rounded_bytes) { return rounded_bytes <= kSmallLimitBytes; }

/// True if new memory of a recorded segment belongs to the small pool, by its size: a plain small
/// segment has one size, and large expandable segments grow by whole large pages.
constexpr bool is_small_segment(int64_t size_bytes, bool is_expandable, const AllocConfig& config) {
  return is_expandable ? size_bytes % config.large_segment_bytes != 0
                       : size_bytes == kSmallSegmentBytes;
}

}  // namespace tidegauge
