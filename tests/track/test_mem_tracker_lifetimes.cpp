// SPDX-License-Identifier: BSD-3-Clause
// Trackers, models, graphs and threads that begin, fail and end in any order.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <barrier>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mem_tracking.h"
#include "tidegauge/tidegauge.h"

namespace mem_tracking {
namespace {

/// A module that throws on request, after its inner module has run.
struct FailingImpl : torch::nn::Module {
  FailingImpl() { inner = register_module("inner", Tracked<torch::nn::Linear>(16, 16)); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = inner(x);
    if (fails) throw std::runtime_error("forward");
    return y;
  }

  Tracked<torch::nn::Linear> inner{nullptr};
  bool fails = false;
};
TORCH_MODULE(Failing);

TEST(MemTracker, EntriesNest) {
  Tracking t;
  t.enter();
  t.tracker.enter();
  t.tracker.exit();
  const at::Tensor a = torch::ones({256});
  EXPECT_EQ(t.now(), 1024);
  t.exit();
  const at::Tensor b = torch::ones({256});
  EXPECT_EQ(t.now(), 1024);
}

TEST(MemTracker, WrongUseIsAnError) {
  MemTracker tracker;
  EXPECT_THROW(tracker.exit(), tidegauge::UsageError);
  EXPECT_THROW((void)tracker.get_tracker_snapshot("peek"), tidegauge::UsageError);
  EXPECT_THROW(tracker.display_snapshot("peak", "MB"), tidegauge::UsageError);
}

TEST(MemTracker, MayBeExitedByAnotherThread) {
  MemTracker tracker;
  tracker.enter();
  std::thread([&] { tracker.exit(); }).join();
  const at::Tensor a = torch::ones({256});
  EXPECT_TRUE(tracker.get_tracker_snapshot().devices.empty());
}

TEST(MemTracker, ForwardThatThrowsEndsItsCalls) {
  Tracked<Failing> net;
  const at::Tensor x = torch::ones({8, 16});
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Tracking t;
  t.tracker.track_external(net, x);
  t.enter();
  net->fails = true;
  EXPECT_THROW(net(x), std::runtime_error);
  EXPECT_EQ(t.now(MemCategory::Activation), 0);
  EXPECT_EQ(t.stats("Failing").find(ModuleState::PostForward)->size(), 1);
  net->fails = false;
  net(x).sum().backward();
  EXPECT_EQ(t.now(MemCategory::Gradient), kParameter);
  tidegauge::step(sgd);  // no module is open any more
  EXPECT_EQ(t.now(MemCategory::Optstate), kParameter);
}

TEST(MemTracker, BackwardThatThrowsLeavesAWorkingTracker) {
  Tracked<Net> net;
  const at::Tensor x = torch::ones({8, 16});
  Tracking t;
  t.tracker.track_external(net, x);
  t.enter();
  {
    at::Tensor y = net(x);
    y.register_hook([](const at::Tensor&) { throw std::runtime_error("backward"); });
    EXPECT_ANY_THROW(y.sum().backward());
  }
  EXPECT_EQ(t.now(MemCategory::Temp), 0);
  net(x).sum().backward();
  EXPECT_EQ(t.now(MemCategory::Gradient), 2 * kParameter);
  EXPECT_EQ(t.now(MemCategory::Temp), 0);
}

TEST(MemTracker, StepThatThrowsEnds) {
  Net net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Tracking t;
  t.enter();
  const auto fail = [&]() -> at::Tensor { throw std::runtime_error("step"); };
  EXPECT_THROW(tidegauge::step(sgd, fail), std::runtime_error);
  const at::Tensor a = torch::ones({256});
  EXPECT_EQ(t.now(MemCategory::Activation), 1024);
}

TEST(MemTracker, EachOfTwoTrackersObservesOpsWhileItIsEntered) {
  Tracked<Net> net;
  const at::Tensor x = torch::ones({8, 16});
  Tracking outer;
  outer.tracker.track_external(net, x);
  outer.enter();
  const at::Tensor a = torch::ones({256});
  {
    Tracking inner;
    inner.enter();
    net(x).sum().backward();
    EXPECT_EQ(inner.now(MemCategory::Gradient), 2 * kParameter);
    EXPECT_EQ(inner.stats("Net").parameter_mem, 2 * kParameter);
  }
  EXPECT_EQ(outer.now(MemCategory::Gradient), 2 * kParameter);
  EXPECT_EQ(outer.stats("Net").output_mem, kBatch);
}

TEST(MemTracker, ExitedTrackerIsNotifiedOfFreesWhileAnotherIsEntered) {
  Tracking outer;
  Tracking inner;
  outer.enter();
  inner.enter();
  std::optional<at::Tensor> a = torch::ones({256});
  inner.exit();
  EXPECT_EQ(inner.now(), 1024);
  a.reset();
  EXPECT_EQ(inner.now(), 0);
  EXPECT_EQ(outer.now(), 0);
}

/// The figures of two training steps under one tracker.
std::string two_steps() {
  torch::manual_seed(0);
  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const at::Tensor x = torch::ones({8, 16});
  Tracking t;
  t.tracker.track_external(*net);
  t.tracker.track_external(optimizer);
  t.tracker.track_external(x);
  t.enter();
  testing::internal::CaptureStdout();
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    call(net, x).sum().backward();
    tidegauge::step(optimizer);
    t.tracker.display_snapshot("current", "B");
    t.tracker.display_modulewise_snapshots(3, "B");
  }
  t.tracker.display_snapshot("peak", "B");
  return testing::internal::GetCapturedStdout();
}

TEST(MemTracker, OneTrackerAndOneOfSeveralReportTheSame) {
  const std::string alone = two_steps();
  const MemTracker beside;
  EXPECT_EQ(two_steps(), alone);
  EXPECT_NE(alone.find("Net.second"), std::string::npos);
}

TEST(MemTracker, ModTrackerBesideItObservesTheSameModules) {
  Tracked<Net> net;
  tidegauge::ModTracker modules;
  std::vector<std::string> names;
  modules.register_user_hooks({.pre_fw = [&](const auto& module, const auto&) {
    names.push_back(modules.get_known_fqn(module).value());
  }});
  modules.enter();
  Tracking t;
  t.enter();
  net(torch::ones({8, 16}));
  modules.exit();
  EXPECT_EQ(names, (std::vector<std::string>{"Net", "Net.first", "Net.second"}));
  EXPECT_TRUE(t.knows("Net.second"));
}

TEST(MemTracker, MayBeDestroyedWhileAModuleRuns) {
  Tracked<Net> net;
  const at::Tensor x = torch::ones({8, 16});
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  {
    std::optional<MemTracker> tracker(std::in_place);
    tracker->enter();
    const tidegauge::ModuleScope scope(*net);
    tracker.reset();
    const at::Tensor a = torch::ones({256});
  }
  Tracking t;
  t.enter();
  EXPECT_EQ(t.now(), 0);
  net(x).sum().backward();
  tidegauge::step(sgd);
  EXPECT_EQ(t.now(MemCategory::Optstate), 2 * kParameter);
}

TEST(MemTracker, MayBeExitedWhileAModuleOrAStepRuns) {
  Tracked<Net> net;
  const at::Tensor x = torch::ones({8, 16});
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Tracking t;
  {
    t.enter();
    const tidegauge::OptimizerStepScope step(sgd);
    const tidegauge::ModuleScope scope(*net);
    t.exit();
  }
  t.enter();
  net(x).sum().backward();
  tidegauge::step(sgd);
  EXPECT_EQ(t.now(MemCategory::Optstate), 2 * kParameter);
}

TEST(MemTracker, DestroyedModelHasNeitherBytesNorStatistics) {
  const at::Tensor x = torch::ones({8, 16});
  Tracking t;
  t.enter();
  {
    Tracked<Net> net;
    net(x).sum().backward();
    EXPECT_TRUE(t.knows("Net"));
  }
  EXPECT_EQ(t.now(MemCategory::Parameter), 0);
  EXPECT_EQ(t.now(MemCategory::Gradient), 0);
  EXPECT_FALSE(t.knows("Net"));
  Tracked<Net> other;  // perhaps at the same address
  other(x);
  EXPECT_EQ(t.stats("Net").parameter_mem, 2 * kParameter);
}

TEST(MemTracker, ModelAndGraphMayOutliveTheTracker) {
  Tracked<Net> net;
  at::Tensor loss;
  {
    Tracking t;
    t.enter();
    loss = net(torch::ones({8, 16})).sum();
  }
  loss.backward();
  EXPECT_TRUE(net->first->weight.grad().defined());
}

/// Each tracker observes all four threads: bytes are sums over all nets, and the nets have
/// different names.
TEST(MemTracker, ThreadsTrainConcurrentlyWithTheirOwnTrackers) {
  constexpr int kThreads = 4;
  constexpr int64_t kBatches = kBatch * (1 + 2 + 3 + 4);
  constexpr int64_t kAllParameters = kThreads * 2 * kParameter;
  std::barrier meeting(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const int64_t batch = kBatch * (i + 1);  // a different size in each thread
      Tracked<Net> net;
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      const at::Tensor x = torch::ones({8 * (i + 1), 16});
      Tracking t;
      t.tracker.track_external("own", net);
      t.tracker.track_external(sgd, x);
      meeting.arrive_and_wait();  // no thread enters a tracker while another one makes its net
      t.enter();
      meeting.arrive_and_wait();
      for (int step = 0; step < 20; ++step) {
        sgd.zero_grad();
        at::Tensor y = net(x);
        meeting.arrive_and_wait();
        // The input of `second` is saved; its output is not, because the mask needs no gradient.
        EXPECT_EQ(t.now(MemCategory::Activation), 2 * kBatches);
        EXPECT_EQ(t.now(MemCategory::Gradient), 0);
        meeting.arrive_and_wait();
        at::Tensor loss = y.sum();
        y.reset();
        loss.backward();
        loss.reset();
        tidegauge::step(sgd);
        meeting.arrive_and_wait();
        EXPECT_EQ(t.now(MemCategory::Activation), 0);
        EXPECT_EQ(t.now(MemCategory::Temp), 0);
        EXPECT_EQ(t.now(MemCategory::Parameter), kAllParameters);
        EXPECT_EQ(t.now(MemCategory::Gradient), kAllParameters);
        EXPECT_EQ(t.now(MemCategory::Optstate), kAllParameters);
        EXPECT_EQ(t.now(MemCategory::Buffer), kThreads * 16 * 4);
        EXPECT_EQ(t.now(MemCategory::Other), batch);
        for (const char* name : {"own.first", "own.second"}) {
          const ModMemStats stats = t.stats(name);
          EXPECT_EQ(stats.parameter_mem, kParameter);
          EXPECT_EQ(stats.output_mem, batch);
          for (const ModuleState state : {ModuleState::PreForward, ModuleState::PostForward,
                                          ModuleState::PreBackward, ModuleState::PostBackward}) {
            const std::vector<MemSnapshot>* calls = stats.find(state);
            EXPECT_EQ(calls == nullptr ? 0 : calls->size(), 1);
          }
        }
        meeting.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mem_tracking
