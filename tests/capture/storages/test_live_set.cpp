// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "capture/storages/live_set.h"
#include "core/events/event_factory.h"
#include "core/ledger/ledger.h"

namespace tidegauge {
namespace {

/// A LiveSet and the Ledger that knows which of its storages are alive.
struct Births {
  void born(uint64_t storage, const at::Tensor& tensor, uint32_t module = 0) {
    const auto size_bytes = static_cast<int64_t>(tensor.nbytes());
    const Event event = events::storage_born({}, StorageId(storage), size_bytes);
    live.add(event.storage, OpId(1), tensor.unsafeGetTensorImpl(), {});
    live.set_module(event, ModuleId(module));
    ledger.apply(event);
  }
  void freed(uint64_t storage) { ledger.apply(events::storage_freed({}, StorageId(storage))); }
  std::vector<LiveGroup> groups() const {
    const auto name = [](auto id) { return std::to_string(id.value); };
    return live.groups(ledger, {name, name, name});
  }

  LiveSet live;
  Ledger ledger;
};

TEST(LiveSet, EqualStoragesAreOneGroupAndTheLargestGroupIsFirst) {
  Births births;
  births.born(1, at::empty({2, 3}));
  births.born(2, at::empty({2, 3}));
  births.born(3, at::empty({100}));
  const auto groups = births.groups();
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].size_bytes, 400);
  EXPECT_EQ(groups[0].shape, "[100]");
  EXPECT_EQ(groups[1].storage_count, 2);
  EXPECT_EQ(groups[1].size_bytes, 2 * 24);
}

TEST(LiveSet, FreedStoragesAreInNoGroup) {
  Births births;
  births.born(1, at::empty({2}));
  births.born(2, at::empty({3}));
  births.freed(1);
  ASSERT_EQ(births.groups().size(), 1);
  EXPECT_EQ(births.groups()[0].shape, "[3]");
}

TEST(LiveSet, DroppingTheDeadChangesNoGroup) {
  Births births;
  for (uint64_t i = 1; i <= 300; ++i) births.born(i, at::empty({static_cast<int64_t>(i)}));
  for (uint64_t i = 1; i <= 298; ++i) births.freed(i);
  EXPECT_TRUE(births.live.is_full());
  births.live.drop_dead(births.ledger);
  EXPECT_FALSE(births.live.is_full());
  ASSERT_EQ(births.groups().size(), 2);
  EXPECT_EQ(births.groups()[0].shape, "[300]");
}

TEST(LiveSet, ShapesOfAnyLengthAndSizeAreKept) {
  Births births;
  births.born(1, at::empty({int64_t{1} << 33}, at::kMeta));
  births.born(2, at::empty({1, 1, 1, 1, 1, 7}));
  births.born(3, at::empty({}));
  std::vector<std::string> shapes;
  for (const LiveGroup& group : births.groups()) shapes.push_back(group.shape);
  EXPECT_EQ(shapes, (std::vector<std::string>{"[8589934592]", "[1, 1, 1, 1, 1, 7]", "[]"}));
}

}  // namespace
}  // namespace tidegauge
