// SPDX-License-Identifier: BSD-3-Clause
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "engine_tracking.h"
#include "tidegauge/errors.h"
#include "tidegauge/threads.h"

namespace tidegauge {
namespace {

TEST(MemEngine, StorageCountsFromItsOpToItsFree) {
  Tracking t;
  {
    const at::Tensor a = torch::ones({256});  // 1 KiB
    EXPECT_EQ(t.now(Category::Activation), 1024);
    const at::Tensor view = a.view({16, 16}).t();
    EXPECT_EQ(t.now(), 1024);
  }
  EXPECT_EQ(t.now(), 0);
  EXPECT_EQ(t.peak(), 1024);
}

// The kinds of results that typed handlers have: one tensor, several, a list, an argument.
TEST(MemEngine, OpsWithTypedHandlersReportAllResults) {
  Tracking t;
  at::Tensor x = torch::ones({8, 32});  // 1 KiB
  {
    const auto [y, mean, rstd] = at::native_layer_norm(x, {32}, {}, {}, 1e-5);
    EXPECT_EQ(t.now(), 2 * 1024 + 2 * 8 * 4);
    const std::vector<at::Tensor> halves = at::split(y, 4);
    EXPECT_EQ(halves.size(), 2);
    EXPECT_EQ(t.now(), 2 * 1024 + 2 * 8 * 4);
  }
  x.add_(1).mul_(2);
  EXPECT_EQ(t.now(), 1024);
  const at::Tensor both = at::cat({x, x});
  EXPECT_EQ(t.now(), 3 * 1024);
}

TEST(MemEngine, OpThatThrowsInATypedHandlerLeavesNoBytes) {
  Tracking t;
  const at::Tensor x = torch::ones({8, 32});
  EXPECT_THROW(at::mm(x, x), c10::Error);
  const at::Tensor y = at::mm(x, x.t());
  EXPECT_EQ(t.now(), 1024 + 8 * 8 * 4);
}

TEST(MemEngine, ThreadIsTrackedWhileAttached) {
  Tracking t;
  std::vector<at::Tensor> kept;
  std::thread([&] {
    kept.push_back(torch::ones({256}));
    attach_thread();
    kept.push_back(torch::ones({256}));
    detach_thread();
    kept.push_back(torch::ones({256}));
    EXPECT_THROW(detach_thread(), UsageError);
  }).join();
  EXPECT_EQ(t.now(), 1024);
}

TEST(MemEngine, ThreadMayEndWhileAttached) {
  for (int i = 0; i < 2; ++i) {
    Tracking t;
    std::thread(&attach_thread).join();
  }
  EXPECT_FALSE(c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake));
}

TEST(MemEngine, AttachedThreadsTrainConcurrently) {
  constexpr int kThreads = 4;
  constexpr int kSteps = 50;
  Tracking t({.leaves_are_parameters = true});
  std::vector<at::Tensor> weights;
  for (int i = 0; i < kThreads; ++i) weights.push_back(torch::ones({16, 16}).requires_grad_());
  std::vector<std::thread> threads;
  for (at::Tensor& weight : weights) {
    threads.emplace_back([&weight] {
      attach_thread();
      for (int step = 0; step < kSteps; ++step) {
        weight.mutable_grad().reset();
        torch::ones({4, 16}).mm(weight).relu().sum().backward();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(t.now(Category::Parameter), kThreads * 1024);
  EXPECT_EQ(t.now(Category::Gradient), kThreads * 1024);
  EXPECT_EQ(t.now(), 2 * kThreads * 1024);
}

TEST(MemEngine, TrackersStartAndStopWhileThreadsCompute) {
  std::atomic<bool> is_over = false;
  std::thread worker([&] {
    attach_thread();
    while (!is_over) torch::ones({16, 16}).mm(torch::ones({16, 16}));
  });
  for (int i = 0; i < 50; ++i) {
    const Tracking t;
    torch::ones({8});
  }
  is_over = true;
  worker.join();
}

TEST(MemEngine, FreeInAnotherThreadIsObserved) {
  Tracking t;
  at::Tensor a = torch::ones({256});
  std::thread([moved = std::move(a)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(t.now(), 0);
}

TEST(MemEngine, StorageMayOutliveTheTracker) {
  at::Tensor a;
  {
    const Tracking t;
    a = torch::ones({256});
  }
  EXPECT_EQ(a.sum().item<float>(), 256);
  a.reset();
}

TEST(MemEngine, GradientIsLabelledSinceItsBirth) {
  const at::Tensor w = torch::ones({16, 16}, torch::requires_grad());
  const at::Tensor x = torch::ones({16, 16});
  Tracking t({.leaves_are_parameters = true});
  torch::mm(x, w).sum().backward();
  EXPECT_EQ(t.now(Category::Gradient), 1024);
  EXPECT_EQ(t.now(Category::Parameter), 1024);
  EXPECT_EQ(t.at_peak(Category::Gradient), 1024);  // mm made it just before the peak
}

TEST(MemEngine, ParameterThatLostItsLabelIsLabelledAgain) {
  Tracking t({.leaves_are_parameters = true});
  const at::Tensor leaf = at::ones({16, 16}).requires_grad_();
  leaf.mul(2).sum().backward();
  EXPECT_EQ(t.now(Category::Parameter), 1024);
  t.engine->label(leaf, Role::IsExternal, Since::Now);
  EXPECT_EQ(t.now(Category::Parameter), 0);
  leaf.mul(2).sum().backward();  // the accumulator runs again
  EXPECT_EQ(t.now(Category::Parameter), 1024);
  EXPECT_EQ(t.now(Category::Gradient), 1024);
}

TEST(MemEngine, LeafThatIsNotAParameterHasNoGradient) {
  const at::Tensor w = torch::ones({256}, torch::requires_grad());
  Tracking t;
  (w * 2).sum().backward();
  EXPECT_EQ(t.now(Category::Gradient), 0);
  EXPECT_EQ(t.now(Category::Temp), 1024);
}

TEST(MemEngine, StorageFreedByABackwardWasSavedForIt) {
  const at::Tensor w = torch::ones({256}, torch::requires_grad());
  Tracking t;
  at::Tensor loss = w.exp().sum();  // only the graph holds the result of exp
  EXPECT_EQ(t.now(Category::Activation), 1024 + 4);
  loss.backward();
  EXPECT_EQ(t.at_peak(Category::SavedActivation), 1024);
}

// No op runs between the backward and the free, so only the end of the backward itself shows that
// it is over.
TEST(MemEngine, StorageFreedAfterABackwardWasNotSavedForIt) {
  for (const bool fails : {false, true}) {
    Tracking t;
    at::Tensor x = torch::ones({256}, torch::requires_grad());
    at::Tensor y = x + 1;
    at::Tensor kept = torch::ones({256});
    x.register_hook([&](const at::Tensor& grad) -> at::Tensor {
      const at::Tensor scaled = grad * 2;  // makes an op of the backward the last one observed
      if (fails) throw std::runtime_error("refused");
      return scaled;
    });
    const at::Tensor loss = (y * 2).sum();
    if (fails) {
      EXPECT_THROW(loss.backward(), std::runtime_error);
    } else {
      loss.backward();
    }
    kept.reset();
    y.reset();
    EXPECT_EQ(t.at_peak(Category::SavedActivation), 0) << (fails ? "failed" : "done");
  }
}

TEST(MemEngine, RepeatedBackwardAfterAFailureHasTheGradientOnce) {
  Tracking t({.leaves_are_parameters = true});
  at::Tensor leaf = torch::ones({256}, torch::requires_grad());
  bool fails = true;
  leaf.register_hook([&](const at::Tensor& grad) -> at::Tensor {
    if (std::exchange(fails, false)) throw std::runtime_error("refused");
    return grad;
  });
  const at::Tensor grad = torch::ones({256});
  EXPECT_THROW(leaf.backward(grad), std::runtime_error);
  leaf.backward(grad);  // the only node of the graph is the same as before
  leaf.backward(grad);
  EXPECT_EQ(t.now(Category::Gradient), 1024);
}

TEST(MemEngine, ForeignMemoryIsCountedSeparatelyAndNeverChanged) {
  std::array<float, 256> memory{};
  int frees = 0;
  Tracking t;
  {
    at::Tensor a = torch::from_blob(memory.data(), {256}, [&](void*) { ++frees; });
    const auto deleter = a.storage().data_ptr().get_deleter();
    a.add_(1);
    EXPECT_EQ(a.storage().data_ptr().get_deleter(), deleter);
    EXPECT_EQ(t.now(Category::Other), 1024);  // it existed before the first op
    EXPECT_EQ(t.engine->foreign_bytes().at(kCpu), 1024);
    EXPECT_EQ(frees, 0);
  }
  EXPECT_EQ(frees, 1);
  EXPECT_EQ(t.now(), 0);
}

TEST(MemEngine, ResizeKeepsTheLabel) {
  Tracking t;
  at::Tensor a = torch::ones({256});
  t.engine->label(a, Role::IsBuffer, Since::Birth);
  a.resize_({512});
  EXPECT_EQ(t.now(Category::Buffer), 2048);
  EXPECT_EQ(t.now(), 2048);
}

TEST(MemEngine, MetaTensorsCountOnTheMetaDevice) {
  Tracking t;
  {
    const at::Tensor a = torch::empty({1024}, torch::device(torch::kMeta));
    EXPECT_EQ(t.engine->current().total_bytes(kMeta), 4096);
    EXPECT_EQ(t.now(), 0);
  }
  EXPECT_EQ(t.engine->current().total_bytes(kMeta), 0);
}

TEST(MemEngine, SparseTensorCountsIndicesAndValues) {
  Tracking t;
  const at::Tensor indices = torch::zeros({1, 4}, torch::kLong);
  const at::Tensor values = torch::ones({4});
  const at::Tensor sparse = torch::sparse_coo_tensor(indices, values, {8});
  EXPECT_EQ(t.now(), 32 + 16);
  const at::Tensor copy = sparse.clone();
  EXPECT_EQ(t.now(), 2 * (32 + 16));
}

TEST(MemEngine, TwoTrackersObserveEventsOnlyWhileStarted) {
  Tracking outer;
  const at::Tensor a = torch::ones({256});
  {
    Tracking inner;
    const at::Tensor b = torch::ones({256});
    EXPECT_EQ(inner.now(), 1024);
    EXPECT_EQ(outer.now(), 2048);
  }
  EXPECT_EQ(outer.now(), 1024);
}

TEST(MemEngine, OpThatThrowsLeavesNoBytes) {
  Tracking t;
  const at::Tensor a = torch::ones({2, 3});
  EXPECT_THROW(torch::mm(a, a), c10::Error);
  EXPECT_EQ(t.now(), 24);
}

TEST(MemEngine, ThreadsAllocateConcurrently) {
  Tracking t;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      t.engine->start();
      for (int n = 0; n < 200; ++n) static_cast<void>(torch::ones({64}) + 1);
      t.engine->stop();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(t.now(), 0);
}

}  // namespace
}  // namespace tidegauge
