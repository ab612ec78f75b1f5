// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "capture/hooks/op_hook.h"
#include "track/memory_tracker.h"

namespace tidegauge {

/// A MemoryTracker that is started in this thread and must end without anomalies or failures.
class Tracking {
 public:
  struct Options {
    bool has_channel = false;
    bool leaves_are_parameters = false;  ///< every leaf counts as a parameter
  };
  explicit Tracking(Options options)
      : memory(MemoryTracker::create(
            ModuleActivity::create([](const at::Tensor&) { return ModuleId{}; }),
            [=](const at::Tensor&) { return options.leaves_are_parameters; },
            options.has_channel)) {
    memory->start();
  }
  Tracking() : Tracking(Options{}) {}
  ~Tracking() {
    memory->stop();
    EXPECT_EQ(memory->anomaly_count(), 0) << memory->first_anomaly();
    EXPECT_EQ(op_hook::failure_count(), 0) << op_hook::first_failure();
  }
  int64_t now(Category category) { return read(memory->current(), category); }
  int64_t now() { return memory->current().total_bytes(kCpu); }
  int64_t at_peak(Category category) { return read(memory->peak(), category); }
  int64_t peak() { return memory->peak().total_bytes(kCpu); }

  std::shared_ptr<MemoryTracker> memory;

 private:
  static int64_t read(const Snapshot& snapshot, Category category) {
    const CategorySplit* split = snapshot.find(kCpu);
    return split != nullptr ? (*split)[category] : 0;
  }
};

}  // namespace tidegauge
