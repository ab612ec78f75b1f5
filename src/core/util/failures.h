// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>

namespace tidegauge {

/// Failures of our own code, which must not reach the training: how many there were, and the text
/// of the first. Thread-safe.
class Failures {
 public:
  /// `where`: what failed, as a phrase ("entering a module"); may be empty.
  void note(std::string_view where, std::string_view what) noexcept;
  int64_t count() const;
  std::string first() const;  ///< empty if there was no failure

  /// Runs `body`. If it throws, notes the failure and returns false.
  template <typename Body>
  bool guard(std::string_view where, Body&& body) noexcept {
    try {
      body();
      return true;
    } catch (const std::exception& error) {
      note(where, error.what());
    } catch (...) {
      note(where, "unknown exception");
    }
    return false;
  }

 private:
  mutable std::mutex mutex_;
  int64_t count_ = 0;
  std::string first_;
};

}  // namespace tidegauge
