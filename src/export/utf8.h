// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

namespace tidegauge {

/// The text, with U+FFFD for each byte that is no part of well-formed UTF-8.
std::string to_valid_utf8(std::string_view text);

}  // namespace tidegauge
