// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "capture/hooks/op_hook.h"
#include "track/mem_engine.h"

namespace tidegauge {

/// A MemEngine that is started in this thread and must end without anomalies or failures.
class Tracking {
 public:
  struct Options {
    bool has_channel = false;
    bool leaves_are_parameters = false;  ///< every leaf counts as a parameter
  };
  explicit Tracking(Options options)
      : engine(MemEngine::create(
            ModuleActivity::create([](const at::Tensor&) { return ModuleId{}; }),
            [=](const at::Tensor&) { return options.leaves_are_parameters; },
            options.has_channel)) {
    engine->start();
  }
  Tracking() : Tracking(Options{}) {}
  ~Tracking() {
    engine->stop();
    EXPECT_EQ(engine->anomaly_count(), 0) << engine->first_anomaly();
    EXPECT_EQ(op_hook::failures().count(), 0) << op_hook::failures().first();
  }
  int64_t now(Category category) { return read(engine->current(), category); }
  int64_t now() { return engine->current().total_bytes(kCpu); }
  int64_t at_peak(Category category) { return read(engine->peak(), category); }
  int64_t peak() { return engine->peak().total_bytes(kCpu); }

  std::shared_ptr<MemEngine> engine;

 private:
  static int64_t read(const Snapshot& snapshot, Category category) {
    const CategorySplit* split = snapshot.find(kCpu);
    return split != nullptr ? (*split)[category] : 0;
  }
};

}  // namespace tidegauge
