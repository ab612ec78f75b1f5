// SPDX-License-Identifier: BSD-3-Clause
#include "trace/interrupts.h"

#include <atomic>

namespace tidegauge::trace {
namespace {

constinit std::atomic<InterruptCheck> current_check{nullptr};

}  // namespace

void set_interrupt_check(InterruptCheck check) { current_check = check; }

bool InterruptClock::is_interrupted() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  next_ = now + std::chrono::milliseconds(200);
  const InterruptCheck check = current_check;
  return check != nullptr && check();
}

}  // namespace tidegauge::trace
