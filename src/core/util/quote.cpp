// SPDX-License-Identifier: BSD-3-Clause
#include "core/util/quote.h"

#include <algorithm>

#include "core/util/utf8.h"

namespace tidegauge {
namespace {

constexpr size_t kLongest = 200;

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

}  // namespace

std::string short_line(std::string_view text) {
  std::string shown = to_valid_utf8(text.substr(0, kLongest));
  std::ranges::replace_if(shown, is_control, '?');
  return text.size() > kLongest ? shown + "..." : shown;
}

std::string quote(std::string_view text) { return "'" + short_line(text) + "'"; }

}  // namespace tidegauge
