// SPDX-License-Identifier: BSD-3-Clause
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <thread>

#include "listener_log.h"

namespace tidegauge {
namespace {

using Lines = std::vector<std::string>;

TEST(CpuDeleter, FreeIsReportedOnce) {
  ListenerLog log;
  std::optional<at::Tensor> tensor = torch::ones(4);
  const StorageId id = observe(*tensor).id;
  EXPECT_EQ(log.lines, Lines{});
  tensor.reset();
  EXPECT_EQ(log.lines, (Lines{ListenerLog::line("freed", id)}));
}

TEST(CpuDeleter, FreeInAnotherThreadIsReported) {
  ListenerLog log;
  std::optional<at::Tensor> tensor = torch::ones(4);
  const StorageId id = observe(*tensor).id;
  std::thread([&] { tensor.reset(); }).join();
  EXPECT_EQ(log.lines, (Lines{ListenerLog::line("freed", id)}));
}

TEST(CpuDeleter, OnlyTheDeleterIsReplaced) {
  const ListenerLog log;
  const at::Tensor tensor = torch::ones(4);
  c10::StorageImpl& storage = storage_impl(tensor);
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  const void* address = data.get();
  EXPECT_FALSE(CpuDeleter::is_ours(data.get_deleter()));
  observe(tensor);
  EXPECT_TRUE(CpuDeleter::is_ours(data.get_deleter()));
  EXPECT_EQ(data.get(), address);
  EXPECT_EQ(data.get_context(), address);
}

TEST(CpuDeleter, FindsTheRecordOfWatchedMemory) {
  const ListenerLog log;
  const at::Tensor watched = torch::ones(4);
  const at::Tensor unwatched = torch::ones(4);
  const StorageId id = observe(watched).id;
  const auto lock = StorageRegistry::lock();
  CpuDeleter& deleter = StorageRegistry::get().cpu_deleter();
  ASSERT_NE(deleter.find(storage_impl(watched)), nullptr);
  EXPECT_EQ(deleter.find(storage_impl(watched))->id, id);
  EXPECT_EQ(deleter.find(storage_impl(unwatched)), nullptr);
}

TEST(CpuDeleter, DoesNotWatchForeignMemory) {
  float values[4] = {};
  const at::Tensor foreign = torch::from_blob(values, 4);
  const auto lock = StorageRegistry::lock();
  EXPECT_EQ(StorageRegistry::get().cpu_deleter().watch(storage_impl(foreign), {}), nullptr);
}

}  // namespace
}  // namespace tidegauge
