// SPDX-License-Identifier: BSD-3-Clause
// Attached threads, and torch guards that restore the dispatch keys of their thread.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "mem_tracking.h"
#include "tidegauge/tidegauge.h"

namespace mem_tracking {
namespace {

constexpr int64_t kKept = 1024;
at::Tensor make_kept() { return torch::ones({256}); }

TEST(Threads, OpsWithinGuardsAreTracked) {
  Tracking t;
  t.enter();
  at::Tensor within;
  {
    const c10::InferenceMode mode;
    within = make_kept();
  }
  const at::Tensor after = make_kept();
  EXPECT_EQ(t.now(MemCategory::Activation), 2 * kKept);
}

TEST(Threads, TrackingResumesWithTheNextCallAfterAGuardAroundTheEntry) {
  torch::nn::Identity module;
  torch::optim::SGD sgd({torch::ones({1}, torch::requires_grad())}, 0.1);
  const at::Tensor x = make_kept();
  const std::map<std::string, std::function<void(Tracking&)>> all{
      {"by itself", [](Tracking&) { tidegauge::watch_thread_again(); }},
      {"module", [&](Tracking&) { call(module, x); }},
      {"step", [&](Tracking&) { tidegauge::step(sgd); }},
      {"snapshot", [](Tracking& t) { static_cast<void>(t.now()); }},
      {"peak", [](Tracking& t) { static_cast<void>(t.at_peak(MemCategory::Other)); }},
      {"attach",
       [](Tracking&) {
         tidegauge::attach_thread();
         tidegauge::detach_thread();
       }},
      {"another tracker",
       [](Tracking&) {
         MemTracker other;
         other.enter();
         other.exit();
       }},
  };
  for (const auto& [name, next_thing] : all) {
    SCOPED_TRACE(name);
    Tracking t;
    std::optional<c10::InferenceMode> mode(std::in_place);
    t.enter();
    const at::Tensor first = make_kept();
    mode.reset();
    const at::Tensor unseen = torch::ones({16});
    next_thing(t);
    const at::Tensor seen = make_kept();
    EXPECT_EQ(t.now(MemCategory::Activation), 2 * kKept);
    const at::Tensor view = unseen.view({4, 4});  // the storage is found, not made
    EXPECT_EQ(t.now(MemCategory::Activation), 2 * kKept);
    EXPECT_EQ(t.now(MemCategory::Other), 16 * 4);
  }
}

TEST(Threads, ThreadAttachedWithinAGuardIsObservedOnRequest) {
  Tracking t;
  t.enter();
  std::thread([&] {
    {
      const c10::InferenceMode mode;
      tidegauge::attach_thread();
    }
    const at::Tensor unseen = make_kept();
    tidegauge::watch_thread_again();
    const at::Tensor seen = make_kept();
    EXPECT_EQ(t.now(MemCategory::Activation), kKept);
    tidegauge::detach_thread();
    tidegauge::watch_thread_again();  // no-op in a thread that is not attached
    const at::Tensor after = make_kept();
    EXPECT_EQ(t.now(MemCategory::Activation), kKept);
  }).join();
}

}  // namespace
}  // namespace mem_tracking
