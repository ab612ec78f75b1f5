// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/rounding.h"

#include <algorithm>
#include <bit>

namespace tidegauge {
namespace {

int64_t divisions_for(int64_t requested_bytes, const AllocConfig& config) {
  const auto log2 = static_cast<int>(std::bit_width(static_cast<uint64_t>(requested_bytes))) - 1;
  const auto last = static_cast<int>(config.roundup_power2_divisions.size()) - 1;
  return config.roundup_power2_divisions[static_cast<size_t>(std::clamp(log2 - 20, 0, last))];
}

}  // namespace

int64_t round_request(int64_t requested_bytes, const AllocConfig& config) {
  if (requested_bytes < kDeviceBlockBytes) return kDeviceBlockBytes;
  const int64_t divisions = divisions_for(requested_bytes, config);
  // For small requests, the divisions would be smaller than 512 bytes.
  const int64_t rounded_bytes = round_up(requested_bytes, kDeviceBlockBytes);
  if (divisions <= 1 || rounded_bytes / kDeviceBlockBytes <= divisions) return rounded_bytes;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(requested_bytes)));
  return power == requested_bytes ? power : round_up(requested_bytes, power / divisions);
}

int64_t segment_bytes(int64_t rounded_bytes, const AllocConfig& config) {
  if (is_small_request(rounded_bytes)) return kSmallSegmentBytes;
  if (rounded_bytes < kMinLargeBytes) return config.large_segment_bytes;
  return round_up(rounded_bytes, kLargeRoundingBytes);
}

}  // namespace tidegauge
