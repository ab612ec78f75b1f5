// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

namespace tidegauge {

/// A text from outside for an error message: control characters become '?', invalid UTF-8
/// becomes U+FFFD, and a long text is cut.
std::string short_line(std::string_view text);
/// The same in quotes: `'text'`.
std::string quote(std::string_view text);

}  // namespace tidegauge
