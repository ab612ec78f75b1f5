// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <barrier>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tidegauge/tidegauge.h"

namespace {

using tidegauge::ModTracker;
using tidegauge::Tracked;
using Names = std::vector<std::string>;

struct BlockImpl : torch::nn::Module {
  BlockImpl() { fc = register_module("fc", Tracked<torch::nn::Linear>(4, 4)); }
  at::Tensor forward(const at::Tensor& x) { return fc(x).relu_(); }
  Tracked<torch::nn::Linear> fc{nullptr};
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", Tracked<Block>());
    second = register_module("second", Tracked<Block>());
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
  Tracked<Block> first{nullptr};
  Tracked<Block> second{nullptr};
};
TORCH_MODULE(Net);

/// Calls `ask` while the node that made `tensor` runs in backward.
at::Tensor ask_in_backward(at::Tensor tensor, std::function<void()> ask) {
  tensor.register_hook([ask = std::move(ask)](const at::Tensor&) { ask(); });
  return tensor;
}

struct Entered {
  explicit Entered(ModTracker& t) : tracker(t) { tracker.enter(); }
  ~Entered() { tracker.exit(); }
  ModTracker& tracker;
};

TEST(ModTracker, OnlyGlobalRunsOutsideModules) {
  ModTracker tracker;
  EXPECT_EQ(tracker.parents(), Names{"Global"});
  EXPECT_FALSE(tracker.is_bw());
}

TEST(ModTracker, EmptySequentialThrowsAsWithoutTracking) {
  ModTracker tracker;
  const Entered entered(tracker);
  torch::nn::Sequential empty;
  EXPECT_THROW(tidegauge::call_sequential(empty, torch::ones({4})), c10::Error);
  EXPECT_EQ(tracker.parents(), Names{"Global"});
}

TEST(ModTracker, ForwardAndBackwardOfAnInnerModuleHaveTheSamePath) {
  ModTracker tracker;
  const Entered entered(tracker);
  Names forward;
  Names backward;
  bool is_bw = false;
  struct AskImpl : torch::nn::Module {
    explicit AskImpl(std::function<at::Tensor(at::Tensor)> f) : body(std::move(f)) {}
    at::Tensor forward(const at::Tensor& x) { return body(x); }
    std::function<at::Tensor(at::Tensor)> body;
  };
  torch::nn::ModuleHolder<AskImpl> inner(std::make_shared<AskImpl>([&](const at::Tensor& x) {
    forward = tracker.parents();
    return ask_in_backward(x * 2, [&] {
      backward = tracker.parents();
      is_bw = tracker.is_bw();
    });
  }));
  torch::nn::ModuleHolder<AskImpl> outer(std::make_shared<AskImpl>(
      [&](const at::Tensor& x) { return tidegauge::call(inner, x) * 3; }));
  outer->register_module("inner", inner.ptr());
  tidegauge::call(outer, torch::ones({2}, torch::requires_grad())).sum().backward();
  EXPECT_EQ(forward, (Names{"Global", "Ask", "Ask.inner"}));
  EXPECT_EQ(backward, forward);
  EXPECT_TRUE(is_bw);
  EXPECT_EQ(tracker.parents(), Names{"Global"});
}

TEST(ModTracker, NamesDropNamespaceAndImplAndFollowThePath) {
  ModTracker tracker;
  const Entered entered(tracker);
  Net net;
  EXPECT_EQ(tracker.get_known_fqn(*net), std::nullopt);
  tidegauge::call(net, torch::ones({1, 4}));
  EXPECT_EQ(tracker.get_known_fqn(*net), "Net");
  EXPECT_EQ(tracker.get_known_fqn(*net->second->fc), "Net.second.fc");
}

TEST(ModTracker, HooksRunInTheSameOrderAsInPython) {
  ModTracker tracker;
  Names calls;
  const auto note = [&](const char* kind, const torch::nn::Module* module) {
    calls.push_back(std::string(kind) + " " + tracker.get_known_fqn(*module).value());
    EXPECT_EQ(tracker.parents().back(), tracker.get_known_fqn(*module));
  };
  tracker.register_user_hooks({
      .pre_fw = [&](const auto& m, const auto&) { note("pre_fw", &m); },
      .post_fw = [&](const auto& m, const auto&, const auto&) { note("post_fw", &m); },
      .pre_bw = [&](const auto* m, const auto&) { note("pre_bw", m); },
      .post_bw = [&](const auto* m, const auto&) { note("post_bw", m); },
  });
  const Entered entered(tracker);
  Block block;
  tidegauge::call(block, torch::ones({2, 4}, torch::requires_grad())).sum().backward();
  EXPECT_EQ(calls, (Names{"pre_fw Block", "pre_fw Block.fc", "post_fw Block.fc", "post_fw Block",
                          "pre_bw Block", "pre_bw Block.fc", "post_bw Block", "post_bw Block.fc"}));
}

TEST(ModTracker, ModuleWithoutInputGradientsEndsWithTheBackward) {
  ModTracker tracker;
  Names calls;
  tracker.register_user_hooks({.post_bw = [&](const auto* m, const auto& grads) {
    EXPECT_TRUE(grads.empty());
    calls.push_back(tracker.get_known_fqn(*m).value());
  }});
  const Entered entered(tracker);
  Block block;
  tidegauge::call(block, torch::ones({2, 4})).sum().backward();
  EXPECT_EQ(calls, (Names{"Block.fc", "Block"}));
}

TEST(ModTracker, EachModuleOfASequentialIsTracked) {
  ModTracker tracker;
  const Entered entered(tracker);
  Tracked<torch::nn::Sequential> modules(torch::nn::Linear(4, 3), torch::nn::ReLU());
  Names seen;
  tracker.register_user_hooks({.pre_fw = [&](const auto& m, const auto& inputs) {
    EXPECT_EQ(inputs.size(), 1U);
    seen.push_back(tracker.get_known_fqn(m).value());
  }});
  EXPECT_EQ(modules(torch::ones({2, 4})).sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ(seen, (Names{"Sequential", "Sequential.0", "Sequential.1"}));
}

TEST(ModTracker, ForwardThatThrowsLeavesNoOpenCalls) {
  ModTracker tracker;
  int ended = 0;
  tracker.register_user_hooks({.post_fw = [&](const auto&, const auto&, const auto& outputs) {
    EXPECT_TRUE(outputs.empty());
    ++ended;
    throw std::logic_error("must not hide the error of the forward");
  }});
  const Entered entered(tracker);
  Net net;
  EXPECT_THROW(tidegauge::call(net, torch::ones({1, 5})), c10::Error);  // 5 is not 4
  EXPECT_EQ(ended, 3);                                                  // fc, first, net
  EXPECT_EQ(tracker.parents(), Names{"Global"});
}

TEST(ModTracker, HookThatThrowsReachesTheCaller) {
  ModTracker tracker;
  tracker.register_user_hooks(
      {.pre_fw = [](const auto&, const auto&) { throw std::logic_error("mine"); }});
  const Entered entered(tracker);
  Net net;
  EXPECT_THROW(tidegauge::call(net, torch::ones({1, 4})), std::logic_error);
  EXPECT_EQ(tracker.parents(), Names{"Global"});
}

TEST(ModTracker, SecondHookOfAKindIsRefusedWithAdvice) {
  ModTracker tracker;
  const ModTracker::UserHooks hooks{.pre_fw = [](const auto&, const auto&) {}};
  tracker.register_user_hooks(hooks);
  try {
    tracker.register_user_hooks(hooks);
    FAIL() << "a second hook was accepted";
  } catch (const tidegauge::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("clear_user_hooks"), std::string::npos);
  }
  tracker.clear_user_hooks();
  tracker.register_user_hooks(hooks);
}

TEST(ModTracker, ExitWithoutEntryIsAUsageError) {
  ModTracker tracker;
  EXPECT_THROW(tracker.exit(), tidegauge::UsageError);
}

TEST(ModTracker, EntriesNestAndDestructionExits) {
  Net net;
  ModTracker tracker;
  {
    ModTracker inner;
    inner.enter();
    inner.enter();
    inner.exit();
    tidegauge::call(net, torch::ones({1, 4}));
    EXPECT_TRUE(inner.get_known_fqn(*net));
    EXPECT_FALSE(tracker.get_known_fqn(*net));
  }
  tidegauge::call(net, torch::ones({1, 4}));  // must not notify the destroyed tracker
}

TEST(ModTracker, DestroyedModuleIsNullInBackward) {
  ModTracker tracker;
  int begun = 0;
  tracker.register_user_hooks({.pre_bw = [&](const auto* m, const auto&) {
    EXPECT_EQ(m, nullptr);
    ++begun;
  }});
  const Entered entered(tracker);
  at::Tensor out;
  {
    Block block;
    out = tidegauge::call(block, torch::ones({2, 4})).sum();
  }
  out.backward();
  EXPECT_EQ(begun, 2);
}

TEST(ModTracker, SecondLiveModelOfAClassHasItsOwnName) {
  ModTracker tracker;
  const Entered entered(tracker);
  Block one;
  Block two;
  tidegauge::call(one, torch::ones({1, 4}));
  tidegauge::call(two, torch::ones({1, 4}));
  EXPECT_EQ(tracker.get_known_fqn(*one), "Block");
  EXPECT_EQ(tracker.get_known_fqn(*two->fc), "Block#2.fc");
}

TEST(ModTracker, AccumulatorBelongsToTheModuleThatOwnsTheParameter) {
  ModTracker tracker;
  const Entered entered(tracker);
  Net net;
  Names seen;
  net->second->fc->weight.register_hook([&](const at::Tensor&) { seen = tracker.parents(); });
  tidegauge::call(net, torch::ones({1, 4})).sum().backward();
  EXPECT_EQ(seen, (Names{"Global", "Net", "Net.second", "Net.second.fc"}));
}

TEST(ModTracker, ThreadsSeeOnlyTheirOwnModules) {
  ModTracker tracker;
  const Entered entered(tracker);
  std::barrier meet(2);
  const auto run = [&](Names& forward, Names& backward) {
    struct WaitImpl : torch::nn::Module {
      explicit WaitImpl(std::function<at::Tensor(at::Tensor)> f) : body(std::move(f)) {}
      at::Tensor forward(const at::Tensor& x) { return body(x); }
      std::function<at::Tensor(at::Tensor)> body;
    };
    const auto model = std::make_shared<WaitImpl>([&](const at::Tensor& x) {
      meet.arrive_and_wait();  // both are inside now
      forward = tracker.parents();
      meet.arrive_and_wait();
      return ask_in_backward(x * 2, [&] {
        meet.arrive_and_wait();
        backward = tracker.parents();
        meet.arrive_and_wait();
      });
    });
    tidegauge::call(model, torch::ones({2}, torch::requires_grad())).sum().backward();
  };
  Names forward1, forward2, backward1, backward2;
  std::thread other([&] { run(forward2, backward2); });
  run(forward1, backward1);
  other.join();
  ASSERT_EQ(forward1.size(), 2U);
  ASSERT_EQ(forward2.size(), 2U);
  EXPECT_NE(forward1, forward2);  // "Wait" and "Wait#2", in either order
  EXPECT_EQ(backward1, forward1);
  EXPECT_EQ(backward2, forward2);
}

TEST(ModTracker, BackwardInAnotherThreadFindsTheForward) {
  ModTracker tracker;
  const Entered entered(tracker);
  Block block;
  const at::Tensor loss = tidegauge::call(block, torch::ones({1, 4})).sum();
  Names seen;
  block->fc->bias.register_hook([&](const at::Tensor&) { seen = tracker.parents(); });
  std::thread([&] { loss.backward(); }).join();
  EXPECT_EQ(seen, (Names{"Global", "Block", "Block.fc"}));
}

TEST(ModTracker, TrackingDoesNotDelayTheFreeOfInputs) {
  ModTracker tracker;
  const Entered entered(tracker);
  struct DropImpl : torch::nn::Module {
    int64_t forward(at::Tensor x) {
      const auto uses = static_cast<int64_t>(x.use_count());
      return uses;
    }
  };
  const auto model = std::make_shared<DropImpl>();
  const int64_t untracked = model->forward(torch::ones({2}));
  EXPECT_EQ(tidegauge::call(model, torch::ones({2})), untracked);
}

TEST(ModTracker, ManyStepsLeaveNoOpenModules) {
  ModTracker tracker;
  const Entered entered(tracker);
  Net net;
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  for (int i = 0; i < 300; ++i) {
    optimizer.zero_grad();
    tidegauge::call(net, torch::ones({2, 4})).sum().backward();
    optimizer.step();
  }
  EXPECT_EQ(tracker.parents(), Names{"Global"});
  EXPECT_EQ(tracker.failure_count(), 0) << tracker.first_failure();
}

}  // namespace
