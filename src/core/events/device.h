// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace tidegauge {

/// A device as torch numbers it (c10::DeviceType, c10::DeviceIndex), held as plain numbers so that
/// the core needs no torch. The default is "cpu". Index -1 is "no index".
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

}  // namespace tidegauge
