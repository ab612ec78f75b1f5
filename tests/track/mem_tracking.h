// SPDX-License-Identifier: BSD-3-Clause
// Shared by the tests of tidegauge::MemTracker: a small model and its bytes.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>

#include "tidegauge/tidegauge.h"

namespace mem_tracking {

using tidegauge::call;
using tidegauge::DeviceMemory;
using tidegauge::MemCategory;
using tidegauge::MemSnapshot;
using tidegauge::MemTracker;
using tidegauge::ModMemStats;
using tidegauge::ModuleState;
using tidegauge::Tracked;

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): the CPU exists
inline const c10::Device kCpu(c10::kCPU);

inline constexpr int64_t kWeight = 16 * 16 * 4;          // the weight of a Linear(16, 16)
inline constexpr int64_t kParameter = kWeight + 16 * 4;  // its weight and bias
inline constexpr int64_t kBatch = 8 * 16 * 4;            // its input or output

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", Tracked<torch::nn::Linear>(16, 16));
    second = register_module("second", Tracked<torch::nn::Linear>(16, 16));
    mask = register_buffer("mask", torch::ones({16}));
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x)) * mask; }

  Tracked<torch::nn::Linear> first{nullptr};
  Tracked<torch::nn::Linear> second{nullptr};
  at::Tensor mask;
};
TORCH_MODULE(Net);

/// A tracker that must end without anomalies or failures.
class Tracking {
 public:
  explicit Tracking(tidegauge::MemTrackerOptions options = {}) : tracker(options) {}
  ~Tracking() {
    if (is_entered_) exit();
    EXPECT_EQ(tracker.anomaly_count(), 0) << tracker.first_anomaly();
    EXPECT_EQ(tracker.failure_count(), 0) << tracker.first_failure();
  }
  void enter() {
    tracker.enter();
    is_entered_ = true;
  }
  void exit() {
    tracker.exit();
    is_entered_ = false;
  }

  int64_t now(MemCategory category) const {
    return tracker.get_tracker_snapshot().bytes(kCpu, category);
  }
  int64_t now() const { return tracker.get_tracker_snapshot().total_bytes(kCpu); }
  int64_t at_peak(MemCategory category) const {
    return tracker.get_tracker_snapshot("peak").bytes(kCpu, category);
  }
  ModMemStats stats(const std::string& name) const {
    for (ModMemStats& each : tracker.memory_tracking()) {
      if (each.mod_fqn == name) return std::move(each);
    }
    ADD_FAILURE() << "no statistics of " << name;
    return {};
  }
  bool knows(const std::string& name) const {
    for (const ModMemStats& each : tracker.memory_tracking()) {
      if (each.mod_fqn == name) return true;
    }
    return false;
  }

  MemTracker tracker;

 private:
  bool is_entered_ = false;
};

}  // namespace mem_tracking
