// SPDX-License-Identifier: BSD-3-Clause
#include "core/util/utf8.h"

#include <cstddef>
#include <cstdint>

namespace tidegauge {
namespace {

/// Length of the character at the start of `text`; 0 if it is invalid: an overlong form, half of a
/// surrogate pair, or beyond U+10FFFF.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool is_overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool is_surrogate = first == 0xED && byte(1) > 0x9F;
    return continues(1) && continues(2) && !is_overlong && !is_surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool is_overlong = first == 0xF0 && byte(1) < 0x90;
    const bool is_beyond = first == 0xF4 && byte(1) > 0x8F;
    return continues(1) && continues(2) && continues(3) && !is_overlong && !is_beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string to_valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t count = character_bytes(text);
    valid += count == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, count);
    text.remove_prefix(count == 0 ? 1 : count);
  }
  return valid;
}

}  // namespace tidegauge
