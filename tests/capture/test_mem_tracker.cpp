// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tidegauge/tidegauge.h"

namespace {

using tidegauge::call;
using tidegauge::DeviceMemory;
using tidegauge::MemCategory;
using tidegauge::MemSnapshot;
using tidegauge::MemTracker;
using tidegauge::ModMemStats;
using tidegauge::ModuleState;
using tidegauge::Tracked;

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): the CPU exists
const c10::Device kCpu(c10::kCPU);

constexpr int64_t kWeight = 16 * 16 * 4;          // of a Linear(16, 16)
constexpr int64_t kParameter = kWeight + 16 * 4;  // with its bias
constexpr int64_t kBatch = 8 * 16 * 4;            // an input or output of it

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

/// Fails as it is told to, after its inner module has run.
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

/// An entered tracker that must end without anything to complain of.
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

TEST(MemTracker, WhatWasMadeBeforeHasItsLabels) {
  Net net;
  const at::Tensor x = torch::ones({8, 16});
  net(x).sum().backward();
  torch::optim::Adam adam(net->parameters());
  adam.step();
  Tracking t;
  t.tracker.track_external(net, adam, x);
  EXPECT_EQ(t.now(MemCategory::Parameter), 2 * kParameter);
  EXPECT_EQ(t.now(MemCategory::Gradient), 2 * kParameter);
  EXPECT_EQ(t.now(MemCategory::Buffer), 64);
  EXPECT_EQ(t.now(MemCategory::Optstate), 2 * 2 * kParameter);
  EXPECT_EQ(t.now(MemCategory::Other), kBatch);
  EXPECT_EQ(t.now(), 8 * kParameter + 64 + kBatch);
}

TEST(MemTracker, TrainingStepInClosedForm) {
  Tracked<Net> net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const at::Tensor x = torch::ones({8, 16});
  Tracking t;
  t.tracker.track_external(net, sgd, x);
  t.enter();
  {
    const at::Tensor y = net(x);
    // The first output is saved for the second Linear, the second's for nobody: mul saves the mask.
    EXPECT_EQ(t.now(MemCategory::Activation), 2 * kBatch);
    y.backward(torch::ones_like(y));
  }
  EXPECT_EQ(t.now(MemCategory::Activation), 0);
  EXPECT_EQ(t.now(MemCategory::Gradient), 2 * kParameter);
  EXPECT_EQ(t.now(MemCategory::Temp), 0);
  tidegauge::step(sgd);
  EXPECT_EQ(t.now(MemCategory::Optstate), 2 * kParameter);
  sgd.zero_grad();
  EXPECT_EQ(t.now(MemCategory::Gradient), 0);
  EXPECT_EQ(t.now(MemCategory::Parameter), 2 * kParameter);
  EXPECT_EQ(t.now(MemCategory::Other), kBatch);
}

TEST(MemTracker, ModulesHaveSizesAndStates) {
  Tracked<Net> net;
  const at::Tensor x = torch::ones({8, 16});
  Tracking t;
  t.tracker.track_external(net, x);
  t.enter();
  net(x).sum().backward();
  const ModMemStats root = t.stats("Net");
  EXPECT_EQ(root.parameter_mem, 2 * kParameter);
  EXPECT_EQ(root.buffer_mem, 64);
  const ModMemStats first = t.stats("Net.first");
  EXPECT_EQ(first.parameter_mem, kParameter);
  EXPECT_EQ(first.buffer_mem, 0);
  EXPECT_EQ(first.input_mem, kBatch);
  EXPECT_EQ(first.output_mem, kBatch);
  std::vector<std::string> states;
  for (const auto& [state, calls] : first.snapshots) {
    states.emplace_back(to_string(state));
    EXPECT_EQ(calls.size(), 1);
  }
  EXPECT_EQ(states, (std::vector<std::string>{"Peak-Forward", "Pre-Forward", "Post-Forward",
                                              "Peak-Backward", "Pre-Backward", "Post-Backward"}));
  const MemSnapshot before = first.find(ModuleState::PreForward)->front();
  const MemSnapshot after = first.find(ModuleState::PostForward)->front();
  EXPECT_EQ(before.bytes(kCpu, MemCategory::Activation), 0);
  EXPECT_EQ(after.bytes(kCpu, MemCategory::Activation), kBatch);
  const MemSnapshot end = first.find(ModuleState::PostBackward)->front();
  EXPECT_EQ(end.bytes(kCpu, MemCategory::Gradient), 2 * kParameter);
  EXPECT_EQ(first.find(ModuleState::PreForwardAc), nullptr);
  ASSERT_EQ(first.local_peak.size(), 1);
  EXPECT_EQ(first.local_peak[0].second,
            first.find(ModuleState::PeakBackward)->front().total_bytes(kCpu));
}

TEST(MemTracker, StatesOfTheFirstStepAreOptstateSinceTheirBirth) {
  Net net;
  const at::Tensor x = torch::ones({8, 16});
  torch::optim::Adam adam(net->parameters());
  Tracking t;
  t.tracker.track_external(net, adam, x);
  t.enter();
  call(net, x).sum().backward();
  {
    const tidegauge::OptimizerStepScope scope(adam);
    adam.step();
    EXPECT_EQ(t.now(MemCategory::Optstate), 2 * 2 * kParameter);
  }
  EXPECT_EQ(t.now(MemCategory::Optstate), 2 * 2 * kParameter);
  EXPECT_GT(t.at_peak(MemCategory::Optstate), 2 * 2 * kParameter);  // with the step's temporaries
}

TEST(MemTracker, OptimizersOfTorchShowTheirStates) {
  const at::Tensor x = torch::ones({8, 16});
  const auto states = [&](auto&& make, bool in_scope) {
    Net net;
    net(x).sum().backward();
    auto optimizer = make(net->parameters());
    Tracking t;
    if (in_scope) {
      t.enter();
      tidegauge::step(*optimizer, [&] { return net(x).sum(); });
    } else {
      optimizer->step([&] { return net(x).sum(); });
    }
    t.tracker.track_external(*optimizer);
    return t.now(MemCategory::Optstate);
  };
  namespace optim = torch::optim;
  for (const bool in_scope : {false, true}) {
    const auto check = [&](auto&& make, int64_t copies) {
      EXPECT_EQ(states(make, in_scope), copies * 2 * kParameter) << in_scope << copies;
    };
    check([](auto p) { return std::make_unique<optim::SGD>(p, optim::SGDOptions(0.1)); }, 0);
    check([](auto p) { return std::make_unique<optim::RMSprop>(p); }, 1);
    check([](auto p) { return std::make_unique<optim::Adagrad>(p); }, 1);
    check([](auto p) { return std::make_unique<optim::AdamW>(p); }, 2);
    const auto amsgrad = optim::AdamOptions().amsgrad(true);
    check([&](auto p) { return std::make_unique<optim::Adam>(p, amsgrad); }, 3);
  }
}

TEST(MemTracker, ClosureOfAStepMakesActivations) {
  Tracked<Net> net;
  const at::Tensor x = torch::ones({8, 16});
  torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(2));
  Tracking t;
  t.tracker.track_external(net, x);
  t.enter();
  int64_t activation = 0;
  tidegauge::step(lbfgs, [&] {
    lbfgs.zero_grad();
    const at::Tensor y = net(x);
    activation = t.now(MemCategory::Activation);
    const at::Tensor loss = y.sum();
    loss.backward();
    return loss;
  });
  EXPECT_EQ(activation, 2 * kBatch);
  EXPECT_EQ(t.now(MemCategory::Gradient), 2 * kParameter);
  EXPECT_GT(t.now(MemCategory::Optstate), 0);
}

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

TEST(MemTracker, MayBeLeftByAnotherThread) {
  MemTracker tracker;
  tracker.enter();
  std::thread([&] { tracker.exit(); }).join();
  const at::Tensor a = torch::ones({256});
  EXPECT_TRUE(tracker.get_tracker_snapshot().devices.empty());
}

TEST(MemTracker, AllocatorShowsWhatNoTensorDoes) {
  MemTracker tracker({.allocator = true});
  tracker.enter();
  void* workspace = c10::GetAllocator(c10::kCPU)->raw_allocate(4096);
  EXPECT_EQ(tracker.get_tracker_snapshot().total_bytes(kCpu), 4096);
  c10::GetAllocator(c10::kCPU)->raw_deallocate(workspace);
  EXPECT_EQ(tracker.get_tracker_snapshot().total_bytes(kCpu), 0);
  tracker.exit();
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
  tidegauge::step(sgd);  // no module is taken to be open still
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

TEST(MemTracker, TwoTrackersSeeWhatHappensWhileTheyAreEntered) {
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

TEST(MemTracker, ModTrackerBesideItSeesTheSameModules) {
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

TEST(MemTracker, DestroyedWhileEnteredInTheMiddleOfAModule) {
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

TEST(MemTracker, ExitedInTheMiddleOfAModuleAndAStep) {
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

TEST(MemTracker, ModelThatDiesTakesItsBytesAndStatisticsAlong) {
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

TEST(MemTracker, ModelAndGraphThatOutliveTheTrackerWorkOn) {
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

TEST(MemTracker, ParametersExchangedWithoutAWordHaveTheirLabels) {
  Tracked<Net> net;
  Tracking t;
  t.tracker.track_external(net);
  t.enter();
  net->to(torch::kDouble);
  EXPECT_EQ(t.now(MemCategory::Parameter), 2 * 2 * kParameter);
  EXPECT_EQ(t.now(MemCategory::Buffer), 2 * 64);
  net->to(torch::kFloat);
  net(torch::ones({8, 16}));  // the call alone notices: these are gone when somebody asks
  net->to(torch::kDouble);
  net->first->weight.mutable_grad() = torch::ones({16, 16}, torch::kDouble);
  EXPECT_EQ(t.now(MemCategory::Gradient), 2 * kWeight);
  EXPECT_EQ(
      t.stats("Net").find(ModuleState::PreForward)->front().bytes(kCpu, MemCategory::Parameter),
      2 * kParameter);
}

TEST(MemTracker, SecondIterationStartsModuleListsAnew) {
  Tracked<Net> net;
  const at::Tensor x = torch::ones({8, 16});
  Tracking t;
  t.enter();
  for (int i = 0; i < 3; ++i) net(x).sum().backward();
  EXPECT_EQ(t.stats("Net").find(ModuleState::PreForward)->size(), 1);
}

TEST(MemTracker, StrictAsksForAReset) {
  Tracked<Net> net;
  const at::Tensor x = torch::ones({8, 16});
  Tracking t({.strict = true});
  t.enter();
  net(x).sum().backward();
  EXPECT_THROW(net(x), tidegauge::NotSupported);
  t.tracker.reset_mod_stats();
  EXPECT_FALSE(t.knows("Net"));
  net(x).sum().backward();
  EXPECT_EQ(t.stats("Net").parameter_mem, 2 * kParameter);
  EXPECT_EQ(t.now(MemCategory::Gradient), 2 * kParameter);
}

TEST(MemTracker, ForeignMemoryIsListedApart) {
  std::array<float, 256> memory{};
  Tracking t;
  const at::Tensor a = torch::from_blob(memory.data(), {256});
  t.tracker.track_external(a);
  const tidegauge::BytesByDevice foreign = t.tracker.get_foreign_memory();
  ASSERT_EQ(foreign.size(), 1);
  EXPECT_EQ(foreign[0], std::make_pair(kCpu, int64_t{1024}));
  EXPECT_EQ(t.now(MemCategory::Other), 1024);
}

TEST(MemTracker, GradientThatNobodyAccumulatesIsTemp) {
  Tracked<Net> net;
  Tracking t;
  t.enter();
  const at::Tensor loss = net(torch::ones({8, 16})).sum();
  const auto grads = torch::autograd::grad({loss}, {net->first->weight});
  EXPECT_EQ(t.now(MemCategory::Temp), kWeight);
  EXPECT_EQ(t.now(MemCategory::Gradient), 0);
}

TEST(MemTracker, SequentialWithSharedModuleCountsItsBytesOnce) {
  torch::nn::Linear shared(16, 16);
  torch::nn::Sequential model(shared, torch::nn::ReLU(), shared);
  Tracking t;
  t.enter();
  tidegauge::call_sequential(model, torch::ones({8, 16})).sum().backward();
  EXPECT_EQ(t.stats("Sequential").parameter_mem, kParameter);
  EXPECT_EQ(t.stats("Sequential.0").find(ModuleState::PreForward)->size(), 2);
  EXPECT_EQ(t.now(MemCategory::Gradient), kParameter);
}

TEST(MemTracker, ThreadsTrainAtOnceEachWithItsTracker) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      Tracked<Net> net;
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      const at::Tensor x = torch::ones({8, 16});
      Tracking t;
      t.tracker.track_external(net, sgd, x);
      t.enter();
      for (int step = 0; step < 20; ++step) {
        sgd.zero_grad();
        net(x).sum().backward();
        tidegauge::step(sgd);
        static_cast<void>(t.now());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MemTracker, TextIsThatOfPython) {
  const MemSnapshot snapshot{{DeviceMemory{kCpu, {1536, 0, 10, 1048576, 5, 0, 0}},
                              DeviceMemory{c10::Device(c10::kMeta), {4, 0, 0, 0, 0, 0, 0}}}};
  EXPECT_EQ(tidegauge::render_snapshot(snapshot, "KiB"),
            "Device: cpu\n\tParameter: 1.5 KiB\n\tBuffer: 0.0 KiB\n\tGradient: 0.01 KiB\n"
            "\tActivation: 1024.0 KiB\n\tTemp: 0.0 KiB\n\tOptstate: 0.0 KiB\n\tOther: 0.0 KiB\n"
            "\tTotal: 1025.51 KiB\n");
  EXPECT_EQ(tidegauge::render_snapshot({{DeviceMemory{c10::Device(c10::kMeta), {4}}}}),
            "Device: meta\n\tParameter: 4 B\n\tBuffer: 0 B\n\tGradient: 0 B\n\tActivation: 0 B\n"
            "\tTemp: 0 B\n\tOptstate: 0 B\n\tOther: 0 B\n\tTotal: 4 B\n");
  EXPECT_EQ(tidegauge::render_snapshot({}), "No memory tracked.\n");
}

TEST(MemTracker, ModulesAreSortedWithNumbersAsNumbers) {
  const auto named = [](std::string name) {
    ModMemStats stats;
    stats.mod_fqn = std::move(name);
    stats.snapshots = {{ModuleState::PreForward, {MemSnapshot{}}}};
    return stats;
  };
  const std::string entry = "\nPre-Forward\n# 1:\nNo memory tracked.\n\n";
  EXPECT_EQ(tidegauge::render_modulewise_snapshots(
                {named("Net.a10"), named("Net.a9"), named("net"), named("Net.A1.b"), named("M")}),
            "Module:  M" + entry + "Module:  net" + entry + "Module:  Net.a9" + entry +
                "Module:  Net.a10" + entry);
}

}  // namespace
