// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "capture/hooks/unseen_changes.h"
#include "capture/storages/known_storage.h"
#include "listener_log.h"

namespace tidegauge {
namespace {

using Lines = std::vector<std::string>;
float values[8];

TEST(StorageRegistry, StorageKeepsItsId) {
  const ListenerLog log;
  const at::Tensor tensor = torch::ones(4);
  const ObservedStorage first = observe(tensor);
  const ObservedStorage again = observe(tensor.view({2, 2}));
  EXPECT_TRUE(first.is_new);
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(first.id, again.id);
  EXPECT_EQ(first.size_bytes, 16);
}

TEST(StorageRegistry, FindReturnsTheIdOfEachKindOfStorageAndRegistersNone) {
  const ListenerLog log;
  for (const at::Tensor& tensor :
       {torch::ones(4), torch::empty(4, torch::kMeta), torch::from_blob(values, 4)}) {
    c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    const auto find = [&] {
      const auto lock = StorageRegistry::lock();
      return StorageRegistry::get().find(storage);
    };
    EXPECT_FALSE(find());
    const ObservedStorage first = observe(tensor);
    EXPECT_TRUE(first.is_new);
    EXPECT_EQ(find(), first.id);
  }
}

TEST(StorageRegistry, EmptyStorageHasAnIdOnlyOnRequest) {
  const ListenerLog log;
  const at::Tensor tensor = torch::empty(0);
  EXPECT_FALSE(observe(tensor).id);
  EXPECT_TRUE(observe(tensor, /*even_empty=*/true).id);
}

void poll_all() {
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().poll_all();
}

TEST(StorageRegistry, FreeOfEachKindOfStorageIsReported) {
  poll_all();  // storages of other tests
  ListenerLog log;
  std::optional<at::Tensor> own = torch::ones(4);
  std::optional<at::Tensor> meta = torch::empty(4, torch::kMeta);
  std::optional<at::Tensor> foreign = torch::from_blob(values, 4);
  const StorageId own_id = observe(*own).id;
  const StorageId meta_id = observe(*meta).id;
  const StorageId foreign_id = observe(*foreign).id;
  own.reset();
  meta.reset();
  foreign.reset();
  poll_all();
  EXPECT_EQ(log.lines,
            (Lines{ListenerLog::line("freed", own_id), ListenerLog::line("freed", meta_id),
                   ListenerLog::line("freed", foreign_id)}));
}

TEST(StorageRegistry, FreeWithinAResizeIsReportedAsAResize) {
  ListenerLog log;
  const at::Tensor tensor = torch::ones(4);
  const StorageId id = observe(tensor).id;
  begin_resize(&storage_impl(tensor));
  at::Tensor other = torch::ones(8);
  storage_impl(tensor).set_data_ptr_noswap(
      std::move(storage_impl(other)._mutable_data_ptr_no_checks()));
  storage_impl(tensor).set_nbytes(32);
  end_resize(&storage_impl(tensor));
  EXPECT_EQ(log.lines, (Lines{ListenerLog::line("resized", id, " to 32")}));
}

TEST(StorageRegistry, DeviceMemoryIsReportedOnlyToListenersThatCountAllocations) {
  ListenerLog plain;
  ListenerLog counting(/*counts_allocations=*/true);
  const auto address = reinterpret_cast<uint64_t>(&values[0]);
  record_device({TraceAction::Alloc, cuda(0), address, 700, 0});
  record_device({TraceAction::FreeRequested, cuda(0), address, 700, 0});
  ASSERT_EQ(counting.lines.size(), 2);
  EXPECT_EQ(counting.lines[0].rfind("allocated", 0), 0);
  EXPECT_EQ(plain.lines.size(), 1);  // the free, which a listener may ignore
}

TEST(StorageRegistry, StorageIsUnknownAfterAListenerIsAdded) {
  const ListenerLog log;
  const at::Tensor tensor = torch::ones(4);
  {
    const auto lock = StorageRegistry::lock();
    StorageRegistry& registry = StorageRegistry::get();
    registry.mark_known(registry.observe(&storage_impl(tensor)));
    EXPECT_TRUE(find_known(&storage_impl(tensor)));
  }
  const ListenerLog later;
  const auto lock = StorageRegistry::lock();
  EXPECT_FALSE(find_known(&storage_impl(tensor)));
}

}  // namespace
}  // namespace tidegauge
