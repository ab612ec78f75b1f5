// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/scalar_type_name.h"

#include <array>
#include <cstddef>
#include <exception>
#include <string>

namespace tidegauge {
namespace {

using Names = std::array<std::string, static_cast<size_t>(c10::ScalarType::NumOptions)>;

Names* make_names() {
  auto* names = new Names;
  for (size_t i = 0; i < names->size(); ++i) {
    try {
      (*names)[i] = c10::getDtypeNames(static_cast<c10::ScalarType>(i)).first;
    } catch (const std::exception&) {  // torch knows no name
    }
  }
  return names;
}

}  // namespace

std::string_view scalar_type_name(c10::ScalarType type) {
  static const Names& names = *make_names();
  const auto index = static_cast<size_t>(type);
  return index < names.size() ? std::string_view(names[index]) : std::string_view();
}

}  // namespace tidegauge
