// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>

#include "core/events/ids.h"
#include "core/util/flat_table.h"

namespace tidegauge {
namespace {

struct Owner {
  ModuleId id;
  std::shared_ptr<uint32_t> value;
};
using Owners = FlatTable<Owner, &Owner::id>;

TEST(FlatTable, EqualsAStandardMapUnderRandomInsertsAndErases) {
  Owners table;
  std::map<uint32_t, uint32_t> model;
  std::mt19937 random(7);
  for (uint32_t i = 0; i < 20'000; ++i) {
    const uint32_t key = 1 + random() % 300;
    if (random() % 2 == 0) {
      const auto [record, is_new] = table.insert(ModuleId(key));
      EXPECT_EQ(is_new, model.count(key) == 0);
      record->value = std::make_shared<uint32_t>(i);
      model[key] = i;
    } else {
      table.erase(ModuleId(key));
      model.erase(key);
    }
    ASSERT_EQ(table.size(), model.size());
  }
  std::map<uint32_t, uint32_t> held;
  table.visit([&](const Owner& owner) { held[owner.id.value] = *owner.value; });
  EXPECT_EQ(held, model);
}

TEST(FlatTable, ErasedRecordIsDestroyedAtOnce) {
  Owners table;
  const auto value = std::make_shared<uint32_t>(1);
  for (uint32_t key = 1; key <= 40; ++key) table.insert(ModuleId(key)).first->value = value;
  EXPECT_EQ(value.use_count(), 41);
  for (uint32_t key = 1; key <= 40; ++key) {
    table.erase(ModuleId(key));
    EXPECT_EQ(value.use_count(), 41 - key);
  }
}

TEST(FlatTable, EmptyKeyFindsNothing) {
  Owners table;
  EXPECT_EQ(table.find(ModuleId()), nullptr);
  table.insert(ModuleId(1));
  EXPECT_EQ(table.find(ModuleId()), nullptr);
  EXPECT_EQ(table.find(ModuleId(2)), nullptr);
}

}  // namespace
}  // namespace tidegauge
