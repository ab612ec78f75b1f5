// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "tidegauge/export.h"

namespace tidegauge {

/// Failures of our own hooks, which the training must not see: how many, and the message of the
/// first one. Thread-safe.
class TIDEGAUGE_API Failures {
 public:
  /// Keeps "where: what" of the first failure; of `what` at most the first line and 300 bytes.
  void note(std::string_view where, std::string_view what) noexcept;

  int64_t count() const;
  /// Empty if there was none.
  std::string first() const;

 private:
  mutable std::mutex mutex_;
  int64_t count_ = 0;
  std::string first_;
};

/// Call in a `catch (...)`.
TIDEGAUGE_API void note_current_exception(Failures& failures, std::string_view where) noexcept;

/// Runs `body`. If it throws, notes the failure instead of passing the exception on.
template <typename Body>
void contain(Failures& failures, std::string_view where, Body&& body) noexcept {
  try {
    body();
  } catch (...) {
    note_current_exception(failures, where);
  }
}

}  // namespace tidegauge
