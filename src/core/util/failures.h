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

/// Notes the exception that is being handled: called in a `catch (...)`.
using NoteException = void (*)(Failures& failures, std::string_view where) noexcept;
TIDEGAUGE_API void note_current_exception(Failures& failures, std::string_view where) noexcept;

/// Runs `body`. If it throws, notes the failure instead of passing the exception on, and returns
/// false.
template <typename Body>
bool contain(Failures& failures, std::string_view where, Body&& body,
             NoteException note = &note_current_exception) noexcept {
  try {
    body();
    return true;
  } catch (...) {
    note(failures, where);
    return false;
  }
}

}  // namespace tidegauge
