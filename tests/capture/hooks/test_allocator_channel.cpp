// SPDX-License-Identifier: BSD-3-Clause
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "capture/hooks/unseen_changes.h"
#include "core/events/device_events.h"
#include "tidegauge/threads.h"
#include "track/engine_tracking.h"

namespace tidegauge {
namespace {

c10::Allocator* current() { return c10::GetAllocator(c10::kCPU); }

struct WithChannel : Tracking {
  WithChannel() : Tracking({.has_channel = true}) {}
};

/// An allocator that another library might install on top: passes all calls on to the previous one.
class PassingOn final : public c10::Allocator {
 public:
  explicit PassingOn(c10::Allocator* below) : below_(below) {}
  c10::DataPtr allocate(size_t size_bytes) override { return below_->allocate(size_bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return below_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    below_->copy_data(to, from, size_bytes);
  }

 private:
  c10::Allocator* const below_;
};

TEST(AllocatorChannel, MemoryWithoutATensorIsUntracked) {
  WithChannel t;
  {
    const c10::DataPtr workspace = current()->allocate(1000);
    EXPECT_EQ(workspace.get(), workspace.get_context());
    EXPECT_EQ(t.now(Category::Untracked), 1000);
    EXPECT_EQ(current()->allocate(0).get(), nullptr);
  }
  EXPECT_EQ(t.now(), 0);
  EXPECT_EQ(t.at_peak(Category::Untracked), 1000);
}

TEST(AllocatorChannel, StorageHasItsLabelSinceItsAllocation) {
  WithChannel t;
  const at::Tensor a = torch::ones({256});  // 1 KiB
  EXPECT_EQ(t.now(Category::Activation), 1024);
  EXPECT_EQ(t.now(), 1024);
  EXPECT_EQ(t.at_peak(Category::Activation), 1024);
}

TEST(AllocatorChannel, TensorOfAnUntrackedThreadIsUntrackedUntilObserved) {
  WithChannel t;
  at::Tensor a;
  std::thread([&] { a = torch::ones({256}); }).join();
  EXPECT_EQ(t.now(Category::Untracked), 1024);
  const at::Tensor view = a.view({16, 16});
  EXPECT_EQ(t.now(Category::Other), 1024);  // as without the channel, because no tracked op made it
  EXPECT_EQ(t.now(), 1024);
  EXPECT_EQ(t.at_peak(Category::Other), 1024);
}

TEST(AllocatorChannel, ResizeHasBothMemoriesAtItsPeakUnderOneLabel) {
  at::Tensor before = torch::ones({256});
  for (const bool is_from_before : {false, true}) {
    WithChannel t;
    at::Tensor a = is_from_before ? before : torch::ones({256});
    t.engine->label(a, Role::IsBuffer, Since::Birth);
    a.resize_({512});
    EXPECT_EQ(t.now(Category::Buffer), 2048);
    EXPECT_EQ(t.now(), 2048);
    EXPECT_EQ(t.at_peak(Category::Buffer), 1024 + 2048);
    EXPECT_EQ(t.peak(), 1024 + 2048);
  }
}

TEST(AllocatorChannel, StorageResizedToZeroKeepsItsLabel) {
  WithChannel t;
  at::Tensor a = torch::ones({256});
  t.engine->label(a, Role::IsBuffer, Since::Birth);
  c10::StorageImpl* storage = a.storage().unsafeGetStorageImpl();
  const auto resize = [&](size_t size_bytes) {
    begin_resize(storage);
    storage->set_data_ptr(storage->allocator()->allocate(size_bytes));
    storage->set_nbytes(size_bytes);
    end_resize(storage);
  };
  resize(0);
  EXPECT_EQ(t.now(), 0);
  resize(4096);
  EXPECT_EQ(t.now(Category::Buffer), 4096);
  EXPECT_EQ(t.now(), 4096);
}

TEST(AllocatorChannel, OnlyTrackersWithTheOptionHaveTheChannel) {
  Tracking without;
  WithChannel with;
  const c10::DataPtr workspace = current()->allocate(1000);
  const at::Tensor a = torch::ones({256});
  EXPECT_EQ(without.now(), 1024);
  EXPECT_EQ(with.now(), 2024);
  EXPECT_EQ(without.now(Category::Activation), with.now(Category::Activation));
}

TEST(AllocatorChannel, LastTrackerRestoresTheAllocator) {
  c10::Allocator* const before = current();
  {
    const Tracking none;
    EXPECT_EQ(current(), before);
    auto first = std::make_unique<WithChannel>();
    c10::Allocator* const ours = current();
    EXPECT_NE(ours, before);
    auto second = std::make_unique<WithChannel>();
    EXPECT_EQ(current(), ours);
    first.reset();
    EXPECT_EQ(current(), ours);
    second.reset();
    EXPECT_EQ(current(), before);
  }
  // The priority of our layer must not shut out other allocators.
  PassingOn other(before);
  c10::SetAllocator(c10::kCPU, &other, 0);
  EXPECT_EQ(current(), &other);
  c10::SetAllocator(c10::kCPU, before, 0);
}

TEST(AllocatorChannel, AllocatorInstalledOnTopStays) {
  c10::Allocator* const before = current();
  auto first = std::make_unique<WithChannel>();
  static PassingOn other(current());
  c10::SetAllocator(c10::kCPU, &other, 0);
  const at::Tensor a = torch::ones({256});
  EXPECT_EQ(first->now(), 1024);
  {
    WithChannel second;  // its layer goes on top of the other allocator and counts for both
    EXPECT_NE(current(), &other);
    const c10::DataPtr workspace = current()->allocate(1000);
    EXPECT_EQ(second.now(), 1000);
    EXPECT_EQ(first->now(), 2024);
  }
  first.reset();
  EXPECT_EQ(current(), &other);
  EXPECT_EQ(torch::ones({256}).sum().item<float>(), 256);  // our layer only passes the calls on
  c10::SetAllocator(c10::kCPU, before, 0);
  {
    WithChannel again;
    const at::Tensor b = torch::ones({256});
    EXPECT_EQ(again.now(), 1024);
  }
  EXPECT_EQ(current(), before);
}

TEST(AllocatorChannel, RawMemoryMayOutliveTheChannel) {
  void* const from_before = current()->raw_allocate(64);
  void* from_within = nullptr;
  {
    WithChannel t;
    current()->raw_deallocate(from_before);
    EXPECT_EQ(t.now(), 0);
    void* const short_lived = current()->raw_allocate(64);
    EXPECT_EQ(t.now(), 64);
    current()->raw_deallocate(short_lived);
    EXPECT_EQ(t.now(), 0);
    from_within = current()->raw_allocate(1024);
  }
  current()->raw_deallocate(from_within);
  // The same address may be allocated again.
  WithChannel t;
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(torch::ones({256}));
  EXPECT_EQ(t.now(), 100 * 1024);
}

TEST(AllocatorChannel, StorageOutlivesTrackerAndChannel) {
  at::Tensor a;
  {
    const WithChannel t;
    a = torch::ones({256});
  }
  a.resize_({512});  // the storage uses the layer that allocated it
  EXPECT_EQ(a.slice(0, 0, 256).sum().item<float>(), 256);
  a.reset();
}

TEST(AllocatorChannel, DestroyedTrackerClosesTheChannel) {
  c10::Allocator* const before = current();
  auto engine = MemEngine::create(
      ModuleActivity::create([](const at::Tensor&) { return ModuleId{}; }),
      [](const at::Tensor&) { return false; }, /*has_allocator_channel=*/true);
  std::thread([&] {  // the op hook stays on in this thread
    engine->start();
    engine->start();
    EXPECT_NE(current(), before);
    engine.reset();
  })
      .join();
  EXPECT_EQ(current(), before);
}

TEST(AllocatorChannel, ThreadsAllocateObserveAndFreeConcurrently) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 10;
  WithChannel t;
  std::atomic<bool> is_over = false;
  std::barrier meeting(kThreads + 1);
  std::vector<std::thread> threads;
  for (int n = 0; n < kThreads; ++n) {
    threads.emplace_back([&, n] {
      if (n % 2 == 1) attach_thread();
      std::vector<c10::DataPtr> kept(8);
      for (int round = 0; round < kRounds; ++round) {
        for (size_t i = 0; i < 200; ++i) kept[i % 8] = current()->allocate(64 + n);
        at::Tensor a = torch::ones({64 * (n + 1)});
        for (int i = 0; i < 20; ++i) a = a.add(a).mul(a);
        meeting.arrive_and_wait();  // all memory is still live, and no thread allocates meanwhile
        meeting.arrive_and_wait();
      }
    });
  }
  std::thread reader([&] {
    while (!is_over) EXPECT_GE(t.now(), 0);
  });
  const int64_t workspace = 8 * (64 + 65 + 66 + 67);
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 50; ++i) torch::ones({64}).add(1).t();
    meeting.arrive_and_wait();
    EXPECT_EQ(t.now(Category::Untracked), workspace + 64 * (1 + 3) * 4);  // of those not attached
    EXPECT_EQ(t.now(Category::Activation), 64 * (2 + 4) * 4);
    EXPECT_EQ(t.now(), workspace + 64 * (1 + 2 + 3 + 4) * 4);
    meeting.arrive_and_wait();
  }
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  reader.join();
  EXPECT_EQ(t.now(), 0);
}

/// An allocator whose memory has a context that is not the memory itself.
class WithContext final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    auto* context = new std::vector<std::byte>(size_bytes);
    return {context->data(), context, &free, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }

 private:
  static void free(void* context) { delete static_cast<std::vector<std::byte>*>(context); }
};

TEST(AllocatorChannel, MemoryWithItsOwnContextIsCountedWhenATensorIsObserved) {
  c10::Allocator* const before = current();
  static WithContext other;
  c10::SetAllocator(c10::kCPU, &other, 0);
  {
    WithChannel t;
    const c10::DataPtr workspace = current()->allocate(1000);
    EXPECT_NE(workspace.get(), workspace.get_context());
    EXPECT_EQ(t.now(), 0);
    {
      const at::Tensor a = torch::ones({256});
      EXPECT_EQ(t.now(Category::Activation), 1024);
      EXPECT_EQ(t.now(), 1024);
    }
    EXPECT_EQ(t.now(), 0);
    EXPECT_EQ(t.peak(), 1024);  // does not include the 1000 bytes
  }
  EXPECT_EQ(current(), &other);
  c10::SetAllocator(c10::kCPU, before, 0);
}

TEST(AllocatorChannel, ForkedChildKeepsWorking) {
  WithChannel t;
  const at::Tensor a = torch::ones({256});
  const pid_t child = fork();
  if (child == 0) {
    {
      const at::Tensor b = torch::ones({256});
      if (t.now() != 2048) _exit(1);
    }
    _exit(t.now() == 1024 ? 0 : 2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(t.now(), 1024);
}

TEST(AllocatorChannel, DeviceMemoryIsRoundedAndEndsWhenItsFreeIsRequested) {
  WithChannel with;
  Tracking without;
  const auto report = [](TraceAction action) {
    record_device({action, cuda(0), 0x7f0000000200, 700, 0});
  };
  report(TraceAction::Alloc);
  EXPECT_EQ(with.engine->current().total_bytes(cuda(0)), 1024);
  EXPECT_EQ(without.engine->current().total_bytes(cuda(0)), 0);  // no tensor was observed yet
  report(TraceAction::FreeRequested);
  report(TraceAction::FreeCompleted);
  EXPECT_EQ(with.engine->current().total_bytes(cuda(0)), 0);
}

}  // namespace
}  // namespace tidegauge
