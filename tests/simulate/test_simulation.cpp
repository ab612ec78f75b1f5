// SPDX-License-Identifier: BSD-3-Clause
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "capture/hooks/op_hook.h"
#include "simulate/simulated_tensor.h"
#include "tidegauge/tidegauge.h"

namespace {

using tidegauge::MemTracker;
using tidegauge::Simulation;
using tidegauge::UsageError;
using tidegauge::simulation::is_simulated;

constexpr int64_t kTeraElements = int64_t{1} << 40;

int64_t total_bytes(const MemTracker& tracker) {
  return tracker.get_tracker_snapshot().total_bytes(c10::kCPU);
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width) {
    first = register_module("first", torch::nn::Linear(width, width));
    second = register_module("second", torch::nn::Linear(width, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }

  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

TEST(Simulation, TensorsHaveShapesAndNoMemory) {
  const Simulation simulation;
  const at::Tensor x = torch::empty({kTeraElements, 2});
  const at::Tensor y = (x + 1).t();
  EXPECT_TRUE(is_simulated(y));
  EXPECT_EQ(y.device(), c10::Device(c10::kCPU));
  EXPECT_EQ(y.sizes(), c10::IntArrayRef({2, kTeraElements}));
  EXPECT_EQ(y.strides(), c10::IntArrayRef({1, 2}));
  EXPECT_EQ(y.storage().nbytes(), static_cast<size_t>(kTeraElements * 2 * 4));
}

TEST(Simulation, TrackerReportsSameBytesAsInRealRun) {
  const auto train = [] {
    Net net(64);
    const at::Tensor x = torch::ones({8, 64});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    MemTracker tracker;
    tracker.track_external(net, optimizer);
    tracker.enter();
    std::vector<int64_t> bytes;
    const at::Tensor loss = net(x).sum();
    bytes.push_back(total_bytes(tracker));
    loss.backward();
    bytes.push_back(total_bytes(tracker));
    optimizer.step();
    optimizer.zero_grad();
    bytes.push_back(total_bytes(tracker));
    return bytes;
  };
  const std::vector<int64_t> real = train();
  const Simulation simulation;
  EXPECT_EQ(train(), real);
  EXPECT_GT(real[1], real[2]);
}

TEST(Simulation, OnlyOneAtATime) {
  const Simulation simulation;
  EXPECT_THROW(Simulation{}, UsageError);
}

TEST(Simulation, InvalidMaskFractionIsRefused) {
  EXPECT_THROW(Simulation({.mask_fraction = 1.5}), UsageError);
  EXPECT_FALSE(is_simulated(torch::ones({2})));
}

TEST(Simulation, EndsWithItsScope) {
  at::Tensor left;
  {
    const Simulation simulation;
    left = torch::ones({4});
  }
  EXPECT_FALSE(is_simulated(torch::ones({4})));
  EXPECT_THROW(left + 1, c10::Error);
  EXPECT_THROW(left.data_ptr(), c10::Error);
  EXPECT_TRUE(tidegauge::op_hook::has_runner());
  left.reset();
  EXPECT_FALSE(tidegauge::op_hook::has_runner());
}

TEST(Simulation, SmallValuesThatProgramsBranchOnAreKnown) {
  const Simulation simulation;
  EXPECT_EQ((torch::arange(10) * 2).sum().item<int64_t>(), 90);
  EXPECT_EQ(torch::arange(3).nonzero().size(0), 2);
  EXPECT_THROW(torch::randn({2}).sum().item(), c10::Error);
}

TEST(Simulation, PolicyAnswersForUnknownValues) {
  const Simulation simulation({.item = 3, .mask_fraction = 0.5});
  EXPECT_EQ(torch::randn({2}).sum().item<float>(), 3.0f);
  EXPECT_EQ(torch::randn({10}).gt(0).nonzero().size(0), 5);
}

TEST(Simulation, ProgramsRandomGeneratorIsNotUsed) {
  torch::manual_seed(1);
  const at::Tensor expected = torch::rand({4});
  torch::manual_seed(1);
  {
    const Simulation simulation;
    torch::randn({100});
    EXPECT_LT(torch::randint(5, {100}, torch::kLong).sum().item<int64_t>(), 500);
    torch::empty({4}, torch::kLong).random_();
  }
  EXPECT_TRUE(torch::rand({4}).equal(expected));
}

TEST(Simulation, RealArgumentIsRefusedByName) {
  const at::Tensor real = torch::ones({2, 2});
  const Simulation simulation;
  try {
    torch::ones({2, 2}).mm(real);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("argument 'mat2' is a real tensor"),
              std::string::npos);
  }
}

TEST(Simulation, AdoptedTensorsKeepSharedStorage) {
  const at::Tensor base = torch::ones({4, 4});
  const Simulation simulation;
  const auto adopted = simulation.adopt({base, base.t(), torch::ones({1})});
  EXPECT_TRUE(adopted[0].is_alias_of(adopted[1]));
  EXPECT_EQ(adopted[1].strides(), base.t().strides());
  EXPECT_TRUE(is_simulated(adopted[2]));
}

TEST(Simulation, ViewInInferenceModeIsInferenceOnlyIfBaseIs) {
  const Simulation simulation;
  const at::Tensor base = torch::ones({4, 4});
  const c10::InferenceMode guard;
  EXPECT_FALSE(base.t().is_inference());
  EXPECT_FALSE(base.t().is_inference());  // from the cache
  EXPECT_TRUE((base + 1).is_inference());
}

TEST(Simulation, CoverageCountsCallsAnsweredFromCache) {
  const Simulation simulation;
  const at::Tensor x = torch::ones({3});
  for (int i = 0; i < 5; ++i) x.add(x);
  for (const auto& op : simulation.coverage()) {
    if (op.op != "aten::add.Tensor") continue;
    EXPECT_EQ(op.calls, 5);
    EXPECT_EQ(op.cached, 4);
    return;
  }
  FAIL() << "aten::add.Tensor was not covered";
}

TEST(Simulation, AttachedThreadsSimulateAtTheSameTime) {
  const Simulation simulation;
  std::atomic<int> simulated{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      tidegauge::attach_thread();
      for (int j = 0; j < 50; ++j) {
        const at::Tensor x = torch::ones({i + 1, j % 7 + 1}).requires_grad_();
        (x * 2).sum().backward();
        if (is_simulated(x.grad())) ++simulated;
      }
      tidegauge::detach_thread();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(simulated, 200);
}

}  // namespace
