// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>

namespace tidegauge {

/// Called regularly with the finished share of the work, from 0 to 1. May throw to stop the work.
using Progress = std::function<void(double)>;

namespace trace {

/// Reports the progress of work that makes `count` passes over all events.
class Passes {
 public:
  Passes(const Progress& progress, uint64_t event_count, int count)
      : progress_(progress), event_count_(event_count), count_(count) {}

  /// Call after each event; the first pass is 0.
  void report(uint64_t sequence, int pass) const {
    if (!progress_ || sequence % kEventsBetween != 0) return;
    progress_((pass + static_cast<double>(sequence) / static_cast<double>(event_count_)) / count_);
  }

 private:
  static constexpr uint64_t kEventsBetween = 1 << 18;

  const Progress& progress_;
  uint64_t event_count_;
  int count_;
};

}  // namespace trace
}  // namespace tidegauge
