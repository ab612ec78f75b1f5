// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <stdexcept>

namespace tidegauge {

/// A read was stopped because the user has interrupted the program.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

namespace trace {

/// Returns true if the user has interrupted the program. Called by the thread that reads.
using InterruptCheck = bool (*)();
/// Without a check, reads are never interrupted.
void set_interrupt_check(InterruptCheck check);

/// Asks the check a few times per second, however often it is called.
class InterruptClock {
 public:
  bool is_interrupted();

 private:
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
};

}  // namespace trace
}  // namespace tidegauge
