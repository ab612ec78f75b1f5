// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

namespace tidegauge {

/// Replaces each byte that is not part of valid UTF-8 by U+FFFD.
std::string to_valid_utf8(std::string_view text);

}  // namespace tidegauge
