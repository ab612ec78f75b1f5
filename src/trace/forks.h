// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace tidegauge::trace {

/// A number that is larger in a forked child than in its parent, once `watch` was called.
/// Thread-safe; reading it costs one load.
class ForkGeneration {
 public:
  static void watch() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { ++number; });
    static_cast<void>(registered);
  }
  static uint64_t now() { return number.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<uint64_t> number{1};
};

}  // namespace tidegauge::trace
