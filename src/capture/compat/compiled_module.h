// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace tidegauge {

/// True for the name of the Python class that torch.compile wraps around a module.
constexpr bool is_compiled_module_class(std::string_view class_name) {
  return class_name == "OptimizedModule";
}

}  // namespace tidegauge
