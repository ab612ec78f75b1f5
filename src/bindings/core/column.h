// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

namespace tidegauge::bindings {

/// Encodes numbers as bytes (LEB128) for the HTML report. python/tidegauge/report/web/columns.js
/// decodes them.
class Column {
 public:
  void add(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  /// For numbers that never decrease: stores the difference from the previous number.
  void add_growing(uint64_t value) {
    add(value - last_);
    last_ = value;
  }

  pybind11::bytes take() const { return bytes_; }

 private:
  std::string bytes_;
  uint64_t last_ = 0;
};

}  // namespace tidegauge::bindings
