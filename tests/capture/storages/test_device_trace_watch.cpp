// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "capture/storages/device_trace_watch.h"
#include "ends_log.h"
#include "listener_log.h"

namespace tidegauge {
namespace {

float values[256];

DeviceTraceEntry entry(TraceAction action) {
  return {action, cuda(0), reinterpret_cast<uint64_t>(&values[0]), 700, 0};
}

TEST(DeviceTraceWatch, AllocationIsRoundedAndHasNoStorageYet) {
  MemoryTable memory;
  EndsLog ends;
  DeviceTraceWatch trace(memory, ends);
  const RegisteredStorage* made = trace.consume(entry(TraceAction::Alloc), StorageId(7));
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->id, StorageId(7));
  EXPECT_EQ(made->size_bytes, 1024);
  EXPECT_EQ(made->device, cuda(0));
  EXPECT_EQ(made->storage, nullptr);
}

TEST(DeviceTraceWatch, FreeIsReportedOnce) {
  MemoryTable memory;
  EndsLog ends;
  DeviceTraceWatch trace(memory, ends);
  trace.consume(entry(TraceAction::Alloc), StorageId(7));
  EXPECT_EQ(trace.consume(entry(TraceAction::FreeRequested), StorageId(8)), nullptr);
  trace.consume(entry(TraceAction::FreeCompleted), StorageId(8));
  EXPECT_EQ(ends.memory, std::vector<StorageId>{StorageId(7)});
  EXPECT_EQ(memory.size(), 0);
}

TEST(DeviceTraceWatch, FirstStorageOfTheMemoryIsWatched) {
  MemoryTable memory;
  EndsLog ends;
  DeviceTraceWatch trace(memory, ends);
  const at::Tensor tensor = torch::from_blob(&values[0], 4);
  RegisteredStorage record = record_of(5);
  record.storage = &storage_impl(tensor);
  EXPECT_EQ(trace.watch(storage_impl(tensor), record), nullptr);  // not allocated yet
  trace.consume(entry(TraceAction::Alloc), StorageId(7));
  ASSERT_NE(trace.watch(storage_impl(tensor), record), nullptr);
  EXPECT_EQ(trace.find(storage_impl(tensor))->id, StorageId(5));
  EXPECT_EQ(trace.watch(storage_impl(tensor), record), nullptr);  // has a storage
  trace.consume(entry(TraceAction::FreeRequested), StorageId(8));
  EXPECT_EQ(ends.memory, std::vector<StorageId>{StorageId(5)});
}

}  // namespace
}  // namespace tidegauge
