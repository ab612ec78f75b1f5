// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <thread>

namespace tidegauge {

/// A lock for sections of some dozen instructions that are entered at every op and hardly ever
/// disputed: half the cost of a std::mutex, which is a call into another library each way. Use it
/// with std::lock_guard.
class SpinLock {
 public:
  void lock() noexcept {
    if (is_taken_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() noexcept { is_taken_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline, gnu::cold]] void wait() noexcept {
    do {
      // Reading costs the owner less than trying; yielding helps it if it was interrupted.
      while (is_taken_.load(std::memory_order_relaxed)) std::this_thread::yield();
    } while (is_taken_.exchange(true, std::memory_order_acquire));
  }

  std::atomic<bool> is_taken_{false};
};

}  // namespace tidegauge
