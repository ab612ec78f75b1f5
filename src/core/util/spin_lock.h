// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <thread>

namespace tidegauge {

/// A lock for sections of a few dozen instructions that run at every op and are hardly ever
/// contended. It costs half as much as a std::mutex, which calls into another library. Use it with
/// std::lock_guard.
class SpinLock {
 public:
  void lock() noexcept {
    if (is_taken_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() noexcept { is_taken_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline, gnu::cold]] void wait() noexcept {
    do {
      // Reading disturbs the owner less than trying to lock. Yielding helps if the owner is
      // preempted.
      while (is_taken_.load(std::memory_order_relaxed)) std::this_thread::yield();
    } while (is_taken_.exchange(true, std::memory_order_acquire));
  }

  std::atomic<bool> is_taken_{false};
};

}  // namespace tidegauge
