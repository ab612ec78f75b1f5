// SPDX-License-Identifier: BSD-3-Clause
// MemTracker in a libtorch program: bytes, labels, statistics, text.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "mem_tracking.h"
#include "tidegauge/tidegauge.h"

namespace mem_tracking {
namespace {

TEST(MemTracker, TensorsMadeBeforeEnterGetTheirLabels) {
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
    // The second Linear saves the first output; mul saves the mask, not the second output.
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

TEST(MemTracker, StatesOfTheFirstStepAreOptstateSinceBirth) {
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

TEST(MemTracker, StatesOfEachTorchOptimizerAreLabelled) {
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

TEST(MemTracker, ModelInTheClosureOfAStepMakesActivations) {
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

TEST(MemTracker, AllocatorCountsMemoryWithoutATensor) {
  MemTracker tracker({.allocator = true});
  tracker.enter();
  void* workspace = c10::GetAllocator(c10::kCPU)->raw_allocate(4096);
  const at::Tensor kept = torch::ones({4});
  EXPECT_EQ(tracker.get_tracker_snapshot().total_bytes(kCpu), 4096 + 16);
  EXPECT_EQ(tracker.get_untracked_memory(), (tidegauge::BytesByDevice{{kCpu, 4096}}));
  c10::GetAllocator(c10::kCPU)->raw_deallocate(workspace);
  EXPECT_EQ(tracker.get_tracker_snapshot().total_bytes(kCpu), 16);
  EXPECT_EQ(tracker.get_untracked_memory(), tidegauge::BytesByDevice{});
  EXPECT_EQ(tracker.get_untracked_memory("peak"), (tidegauge::BytesByDevice{{kCpu, 4096}}));
  EXPECT_THROW((void)tracker.get_untracked_memory("last"), tidegauge::UsageError);
  tracker.exit();
}

TEST(MemTracker, ModuleHasTheNameChosenByTheProgram) {
  Tracked<Net> generator;
  Tracked<Net> discriminator;
  Tracked<Net> other;
  const at::Tensor x = torch::ones({8, 16});
  Tracking t;
  t.tracker.track_external("generator", generator);
  t.tracker.track_external("generator", other);
  t.enter();
  generator(x);
  discriminator(x);
  other(x);
  const auto names = [&] {
    std::vector<std::string> all;
    for (const ModMemStats& each : t.tracker.memory_tracking()) all.push_back(each.mod_fqn);
    return all;
  };
  EXPECT_EQ(names(), (std::vector<std::string>{"generator", "generator.first", "generator.second",
                                               "Net", "Net.first", "Net.second", "generator#2",
                                               "generator#2.first", "generator#2.second"}));
  t.tracker.track_external("discriminator", discriminator);  // it was already called
  t.tracker.track_external("head", discriminator->second);   // a part keeps its path
  t.tracker.track_external("critic", *other.get());          // as a plain Module
  EXPECT_EQ(names(), (std::vector<std::string>{"generator", "generator.first", "generator.second",
                                               "discriminator", "discriminator.first",
                                               "discriminator.second", "critic", "critic.first",
                                               "critic.second"}));
  EXPECT_EQ(t.now(MemCategory::Parameter), 3 * 2 * kParameter);
  const std::string text = tidegauge::render_modulewise_snapshots(t.tracker.memory_tracking(), 1);
  EXPECT_NE(text.find("Module:  generator\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("Net"), std::string::npos) << text;
}

TEST(MemTracker, InvalidModuleNameIsAnError) {
  MemTracker tracker;
  const Net net;
  EXPECT_THROW(tracker.track_external("", net), tidegauge::UsageError);
  EXPECT_THROW(tracker.track_external("a.b", net), tidegauge::UsageError);
  EXPECT_TRUE(tracker.get_tracker_snapshot().devices.empty());
}

TEST(MemTracker, ExchangedParametersHaveTheirLabels) {
  Tracked<Net> net;
  Tracking t;
  t.tracker.track_external(net);
  t.enter();
  net->to(torch::kDouble);
  EXPECT_EQ(t.now(MemCategory::Parameter), 2 * 2 * kParameter);
  EXPECT_EQ(t.now(MemCategory::Buffer), 2 * 64);
  net->to(torch::kFloat);
  net(torch::ones({8, 16}));  // only this call sees these parameters: they are replaced below
  net->to(torch::kDouble);
  net->first->weight.mutable_grad() = torch::ones({16, 16}, torch::kDouble);
  EXPECT_EQ(t.now(MemCategory::Gradient), 2 * kWeight);
  EXPECT_EQ(
      t.stats("Net").find(ModuleState::PreForward)->front().bytes(kCpu, MemCategory::Parameter),
      2 * kParameter);
}

TEST(MemTracker, SecondIterationRestartsModuleLists) {
  Tracked<Net> net;
  const at::Tensor x = torch::ones({8, 16});
  Tracking t;
  t.enter();
  for (int i = 0; i < 3; ++i) net(x).sum().backward();
  EXPECT_EQ(t.stats("Net").find(ModuleState::PreForward)->size(), 1);
}

TEST(MemTracker, StrictTrackerRequiresAReset) {
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

TEST(MemTracker, ForeignMemoryIsListedSeparately) {
  std::array<float, 256> memory{};
  Tracking t;
  const at::Tensor a = torch::from_blob(memory.data(), {256});
  t.tracker.track_external(a);
  const tidegauge::BytesByDevice foreign = t.tracker.get_foreign_memory();
  ASSERT_EQ(foreign.size(), 1);
  EXPECT_EQ(foreign[0], std::make_pair(kCpu, int64_t{1024}));
  EXPECT_EQ(t.now(MemCategory::Other), 1024);
}

TEST(MemTracker, IndicesOfASparseGradientAreNotGradients) {
  torch::nn::Embedding words(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  const at::Tensor ids = torch::tensor({{1, 3}}, torch::kLong);
  words->weight.mutable_grad() =
      torch::_sparse_coo_tensor_unsafe(ids, torch::ones({2, 4}), {10, 4});
  Tracking t;
  t.tracker.track_external(words);
  t.enter();
  EXPECT_EQ(t.now(MemCategory::Gradient), 2 * 4 * 4);  // the program may use `ids` as an input
}

TEST(MemTracker, GradientThatIsNotAccumulatedIsTemp) {
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

TEST(MemTracker, TextIsTheSameAsInPython) {
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

TEST(MemTracker, ModulesAreSortedWithNumbersByValue) {
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
}  // namespace mem_tracking
