// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>

namespace tidegauge {

/// Called now and then with the share of the work that is done; may throw to stop it.
using Progress = std::function<void(double)>;

namespace trace {

/// Reports the progress of work that reads all events `count` times.
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
