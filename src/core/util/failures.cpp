// SPDX-License-Identifier: BSD-3-Clause
#include "core/util/failures.h"

#include <exception>

#include "core/util/utf8.h"

namespace tidegauge {

void Failures::note(std::string_view where, std::string_view what) noexcept {
  constexpr size_t kLongest = 300;
  const std::lock_guard lock(mutex_);
  if (count_++ > 0) return;
  try {
    what = what.substr(0, what.find('\n')).substr(0, kLongest);
    first_ = std::string(where) + ": " + to_valid_utf8(what);
  } catch (...) {
    // No memory for the message. The count is what matters.
  }
}

void note_current_exception(Failures& failures, std::string_view where) noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    failures.note(where, error.what());
  } catch (...) {
    failures.note(where, "an unknown exception");
  }
}

int64_t Failures::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

std::string Failures::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

}  // namespace tidegauge
