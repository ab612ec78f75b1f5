// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "capture/storages/own_context.h"
#include "ends_log.h"
#include "listener_log.h"

namespace tidegauge {
namespace {

at::Tensor make_meta() { return torch::empty(4, torch::kMeta); }

TEST(OwnContext, EndOfAMetaStorageIsReported) {
  SpinLock lock;
  EndsLog ends;
  OwnContext contexts(lock, ends);
  std::optional<at::Tensor> tensor = make_meta();
  ASSERT_NE(contexts.watch(storage_impl(*tensor), record_of(7)), nullptr);
  EXPECT_EQ(contexts.find(storage_impl(*tensor))->id, StorageId(7));
  tensor.reset();
  EXPECT_EQ(ends.storages, std::vector<StorageId>{StorageId(7)});
  EXPECT_TRUE(ends.memory.empty());
}

TEST(OwnContext, ReleasedStorageHasNoContext) {
  SpinLock lock;
  EndsLog ends;
  OwnContext contexts(lock, ends);
  std::optional<at::Tensor> tensor = make_meta();
  contexts.watch(storage_impl(*tensor), record_of(7));
  EXPECT_EQ(OwnContext::release(storage_impl(*tensor)).id, StorageId(7));
  EXPECT_EQ(storage_impl(*tensor)._mutable_data_ptr_no_checks().get_context(), nullptr);
  EXPECT_EQ(contexts.find(storage_impl(*tensor)), nullptr);
  tensor.reset();
  EXPECT_TRUE(ends.storages.empty());
}

TEST(OwnContext, KeepsTheFakeMode) {
  SpinLock lock;
  EndsLog ends;
  OwnContext contexts(lock, ends);
  const int mode = 0;
  const at::Tensor tensor = make_meta();
  EXPECT_EQ(OwnContext::fake_mode(storage_impl(tensor)), nullptr);
  contexts.watch_fake(storage_impl(tensor), {}, &mode);
  EXPECT_EQ(OwnContext::fake_mode(storage_impl(tensor)), &mode);
}

TEST(OwnContext, DoesNotWatchStoragesWithMemoryOrAContext) {
  SpinLock lock;
  EndsLog ends;
  OwnContext contexts(lock, ends);
  const at::Tensor on_cpu = torch::ones(4);
  EXPECT_EQ(contexts.watch(storage_impl(on_cpu), {}), nullptr);
  const at::Tensor on_meta = make_meta();
  EXPECT_NE(contexts.watch(storage_impl(on_meta), {}), nullptr);
  EXPECT_EQ(contexts.watch(storage_impl(on_meta), {}), nullptr);
}

}  // namespace
}  // namespace tidegauge
