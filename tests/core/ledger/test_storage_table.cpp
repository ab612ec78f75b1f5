// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <random>
#include <unordered_map>

#include "core/ledger/storage_history.h"
#include "core/ledger/storage_table.h"

namespace tidegauge {
namespace {

TEST(StorageTable, FindsOnlyInsertedRecords) {
  StorageTable table;
  EXPECT_EQ(table.find(StorageId(1)), nullptr);
  EXPECT_TRUE(table.insert(StorageId(1)).second);
  EXPECT_FALSE(table.insert(StorageId(1)).second);
  ASSERT_NE(table.find(StorageId(1)), nullptr);
  EXPECT_EQ(table.find(StorageId(2)), nullptr);
  EXPECT_EQ(table.find(StorageId()), nullptr);
  EXPECT_EQ(table.size(), 1u);
}

TEST(StorageTable, NewRecordInTheSlotOfAnErasedOneIsBlank) {
  StorageTable table;
  StorageRecord* record = table.insert(StorageId(1)).first;
  record->size_bytes = 99;
  record->history = 5;
  table.erase(record);
  record = table.insert(StorageId(1)).first;
  EXPECT_EQ(record->size_bytes, 0);
  EXPECT_EQ(record->history, kNoHistory);
}

// The kinds of ids that occur: consecutive numbers, aligned addresses, random numbers.
TEST(StorageTable, EqualsAStandardMapUnderRandomInsertsAndErases) {
  for (const uint64_t stride : {uint64_t{1}, uint64_t{64}, uint64_t{0x9E3779B9}}) {
    std::mt19937_64 random(stride);
    StorageTable table;
    std::unordered_map<uint64_t, int64_t> expected;
    for (int i = 0; i < 200'000; ++i) {
      // The range grows and shrinks, so that the table is sometimes full, sometimes nearly empty.
      const uint64_t range = i % 50'000 < 25'000 ? 3'000 : 30;
      const uint64_t id = (1 + random() % range) * stride;
      if (random() % 2 == 0) {
        const auto [record, is_new] = table.insert(StorageId(id));
        EXPECT_EQ(is_new, expected.emplace(id, i).second);
        if (is_new) record->size_bytes = i;
      } else if (StorageRecord* record = table.find(StorageId(id))) {
        EXPECT_EQ(record->size_bytes, expected.at(id));
        table.erase(record);
        expected.erase(id);
      } else {
        EXPECT_FALSE(expected.contains(id));
      }
      ASSERT_EQ(table.size(), expected.size());
    }
    for (const auto& [id, size_bytes] : expected) {
      ASSERT_NE(table.find(StorageId(id)), nullptr);
      EXPECT_EQ(table.find(StorageId(id))->size_bytes, size_bytes);
    }
  }
}

TEST(StorageTable, StaysWithin160BytesPerStorageWhenItGrows) {
  StorageTable table;
  for (uint64_t id = 1; id <= 100'000; ++id) {
    const size_t before = table.footprint_bytes();
    table.insert(StorageId(id));
    const size_t after = table.footprint_bytes();
    const size_t held = after == before ? after : after + before;  // both tables, while it grows
    if (id < 100) continue;  // the first table is larger than its few records
    ASSERT_LE(held, 160 * id) << id;
  }
}

/// Relabels the storage and returns the begins of the changed pieces.
std::vector<uint64_t> relabel(StorageHistory& history, const StorageRecord& record,
                              Category category) {
  std::vector<uint64_t> starts;
  history.relabel(record, category, [&](const auto& piece) {
    EXPECT_NE(piece.category, category);
    starts.push_back(piece.from_sequence);
  });
  std::sort(starts.begin(), starts.end());
  return starts;
}

/// Pieces [10, 20) [20, 30) ... of the given categories.
StorageRecord& remember(StorageHistory& history, StorageTable& table,
                        std::initializer_list<Category> categories) {
  StorageRecord& record = *table.insert(StorageId(1)).first;
  for (const Category category : categories) {
    record.since_sequence += 10;
    record.category = category;
    history.remember(record, record.since_sequence + 10);
  }
  return record;
}

TEST(StorageHistory, TrimKeepsPiecesThatHoldAStoredSplit) {
  StorageTable table;
  StorageHistory history;
  const Category temp = Category::Temp;
  const StorageRecord& record = remember(history, table, {temp, temp, temp, temp, temp});
  history.trim({5, 20, 39, 60}, table);
  EXPECT_EQ(history.size(), 2u);
  EXPECT_EQ(relabel(history, record, Category::Gradient), (std::vector<uint64_t>{20, 30}));
}

TEST(StorageHistory, RelabelVisitsEachPieceOnce) {
  StorageTable table;
  StorageHistory history;
  const Category temp = Category::Temp;
  const Category gradient = Category::Gradient;
  StorageRecord& record = remember(history, table, {temp, temp, gradient, temp});
  EXPECT_EQ(relabel(history, record, gradient), (std::vector<uint64_t>{10, 20, 40}));
  EXPECT_TRUE(relabel(history, record, gradient).empty());
  remember(history, table, {temp, gradient});
  EXPECT_EQ(relabel(history, record, gradient), std::vector<uint64_t>{50});
  history.trim({11, 21, 31, 41, 51, 61}, table);
  EXPECT_TRUE(relabel(history, record, gradient).empty());
  EXPECT_EQ(relabel(history, record, temp).size(), 6u);
}

TEST(StorageHistory, ForgottenPiecesAreReused) {
  StorageTable table;
  StorageHistory history;
  for (int i = 0; i < 1'000; ++i) {
    StorageRecord& record = *table.insert(StorageId(7)).first;
    history.remember(record, 1);
    history.remember(record, 2);
    history.forget(record);
    table.erase(&record);
  }
  EXPECT_EQ(history.size(), 0u);
  EXPECT_LE(history.footprint_bytes(), 2 * sizeof(StorageHistory::Piece));
}

}  // namespace
}  // namespace tidegauge
