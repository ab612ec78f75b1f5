// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tidegauge/errors.h"

namespace tidegauge::fuzz {

/// The bytes that libFuzzer chose, read as values. At the end of the bytes all values are 0.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  bool is_empty() const { return left_ == 0; }
  uint8_t byte() { return take<uint8_t>(); }
  /// 0 to `bound` - 1.
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(take<uint32_t>() % static_cast<uint64_t>(bound));
  }
  bool one_in(int64_t n) { return byte() % n == 1; }
  template <typename Value>
  Value take() {
    Value value{};
    const size_t size = std::min(left_, sizeof(Value));
    std::memcpy(&value, data_, size);
    data_ += size;
    left_ -= size;
    return value;
  }
  std::string_view text(size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data_), std::min(left_, size));
    data_ += text.size();
    left_ -= text.size();
    return text;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

/// Ends the process, which libFuzzer reports as a finding.
[[noreturn]] inline void fail(std::string_view what) {
  std::fprintf(stderr, "finding: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

/// Runs `body`. Errors of bad input must have a type for users and a short message of one line. Any
/// other exception ends the process.
template <typename Body>
void expect_clean_errors(Body body) {
  try {
    body();
  } catch (const InternalError& error) {
    fail(error.what());
  } catch (const Error& error) {
    const std::string_view message = error.what();
    if (message.empty() || message.size() > 1500 || message.find('\n') != message.npos) {
      fail("not one short line: " + std::string(message));
    }
  }
}

}  // namespace tidegauge::fuzz
