// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace tidegauge {

/// A device, with torch's numbers for its type and index (c10::DeviceType, c10::DeviceIndex). Plain
/// numbers, so that the core does not need torch. The default is "cpu". Index -1 means no index.
struct Device {
  int8_t type = 0;
  int8_t index = -1;

  friend constexpr bool operator==(Device, Device) = default;
  friend constexpr auto operator<=>(Device, Device) = default;
};

inline constexpr Device kCpu{0, -1};
inline constexpr Device kMeta{14, -1};
constexpr Device cuda(int8_t index) { return {1, index}; }

/// "cpu", "cuda:0", "meta"; an unknown type prints as its number, "type42:0".
std::string to_string(Device device);

/// The inverse of to_string; "cuda" has no index. UsageError for any other text.
Device parse_device(std::string_view text);

}  // namespace tidegauge
