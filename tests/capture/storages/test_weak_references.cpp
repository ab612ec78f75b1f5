// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "capture/storages/weak_references.h"
#include "ends_log.h"
#include "listener_log.h"

namespace tidegauge {
namespace {

float values[8];

TEST(WeakReferences, EndIsReportedByTheNextPoll) {
  EndsLog ends;
  WeakReferences references(ends);
  std::optional<at::Tensor> tensor = torch::from_blob(values, 4);
  references.watch(storage_impl(*tensor), record_of(7));
  references.poll(1);
  EXPECT_TRUE(ends.storages.empty());
  tensor.reset();
  EXPECT_TRUE(ends.storages.empty());
  references.poll(1);
  EXPECT_EQ(ends.storages, std::vector<StorageId>{StorageId(7)});
  EXPECT_TRUE(references.empty());
}

TEST(WeakReferences, PollingOneAtATimeReachesAll) {
  EndsLog ends;
  WeakReferences references(ends);
  std::vector<at::Tensor> tensors;
  for (uint64_t i = 0; i < 4; ++i) {
    tensors.push_back(torch::from_blob(values, 4));
    references.watch(storage_impl(tensors.back()), record_of(i + 1));
  }
  tensors.erase(tensors.begin() + 2);
  for (int i = 0; i < 4; ++i) references.poll(1);
  EXPECT_EQ(ends.storages, std::vector<StorageId>{StorageId(3)});
  EXPECT_EQ(references.size(), 3);
  EXPECT_EQ(references.find(storage_impl(tensors[2]))->id, StorageId(4));
}

TEST(WeakReferences, StorageIsNotChanged) {
  EndsLog ends;
  WeakReferences references(ends);
  const at::Tensor tensor = torch::from_blob(values, 4);
  const c10::DeleterFnPtr deleter =
      storage_impl(tensor)._mutable_data_ptr_no_checks().get_deleter();
  references.watch(storage_impl(tensor), {});
  EXPECT_EQ(storage_impl(tensor)._mutable_data_ptr_no_checks().get_deleter(), deleter);
  EXPECT_EQ(tensor.storage().use_count(), 1);
}

TEST(WeakReferences, ReleasedStorageIsNotReported) {
  EndsLog ends;
  WeakReferences references(ends);
  std::optional<at::Tensor> tensor = torch::from_blob(values, 4);
  references.watch(storage_impl(*tensor), record_of(7));
  references.release(storage_impl(*tensor));
  tensor.reset();
  references.poll(1);
  EXPECT_TRUE(ends.storages.empty());
}

TEST(WeakReferences, MetaStoragesAreNotForeign) {
  EndsLog ends;
  WeakReferences references(ends);
  const at::Tensor foreign = torch::from_blob(values, 4);
  const at::Tensor meta = torch::empty(4, torch::kMeta);
  references.watch(storage_impl(foreign), record_of(1));
  references.watch(storage_impl(meta), record_of(2));
  std::vector<StorageId> visited;
  references.visit_foreign([&](const RegisteredStorage& each) { visited.push_back(each.id); });
  EXPECT_EQ(visited, std::vector<StorageId>{StorageId(1)});
}

}  // namespace
}  // namespace tidegauge
