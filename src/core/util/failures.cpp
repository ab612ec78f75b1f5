// SPDX-License-Identifier: BSD-3-Clause
#include "core/util/failures.h"

namespace tidegauge {

void Failures::note(std::string_view where, std::string_view what) noexcept {
  const std::lock_guard lock(mutex_);
  if (count_++ > 0) return;
  try {
    if (!where.empty()) first_.append(where).append(": ");
    first_.append(what);
  } catch (const std::exception&) {  // no memory for the text
    first_.clear();
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
