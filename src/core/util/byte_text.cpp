// SPDX-License-Identifier: BSD-3-Clause
#include "core/util/byte_text.h"

#include <cmath>
#include <cstdio>

namespace tidegauge {

std::string render_bytes(int64_t size_bytes) {
  if (size_bytes > -1024 && size_bytes < 1024) return std::to_string(size_bytes) + " B";
  size_t unit = 0;
  auto value = static_cast<double>(size_bytes);
  // A value from 1023.5 on would be printed as 1024, with four digits.
  for (; std::abs(value) >= 1023.5 && unit + 1 < kByteUnits.size(); ++unit) value /= 1024;
  const double size = std::abs(value);
  const int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f ", decimals, value);
  return text.data() + std::string(kByteUnits[unit].name);
}

}  // namespace tidegauge
