// SPDX-License-Identifier: BSD-3-Clause
#include "core/util/module_path.h"

#include <algorithm>
#include <cstddef>

namespace tidegauge {

std::string omitted_parts(size_t count) { return "(" + std::to_string(count) + " more)"; }

std::string shorten_path(std::string_view path) {
  const auto count = static_cast<size_t>(std::count(path.begin(), path.end(), '.')) + 1;
  if (count <= 2 * kPathEndParts) return std::string(path);
  size_t first = 0;  // after the first parts
  for (size_t i = 0; i < kPathEndParts; ++i) first = path.find('.', first) + 1;
  size_t last = path.size();  // before the last parts
  for (size_t i = 0; i < kPathEndParts - 1; ++i) last = path.rfind('.', last - 1);
  const size_t omitted = count - 2 * kPathEndParts + 1;
  return std::string(path.substr(0, first)) + omitted_parts(omitted) +
         std::string(path.substr(last));
}

}  // namespace tidegauge
