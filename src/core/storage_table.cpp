// SPDX-License-Identifier: BSD-3-Clause
#include "core/storage_table.h"

namespace tidegauge {
namespace {

constexpr size_t kFirstCapacity = 64;
constexpr int kFirstShift = 64 - 6;

}  // namespace

std::pair<StorageRecord*, bool> StorageTable::insert(StorageId id) {
  if ((size_ + 1) * 4 > slots_.size() * 3) grow();
  const size_t mask = slots_.size() - 1;
  for (size_t i = home(id);; i = (i + 1) & mask) {
    if (slots_[i].id == id) return {&slots_[i], false};
    if (!slots_[i].id) {
      slots_[i] = StorageRecord{};
      slots_[i].id = id;
      ++size_;
      return {&slots_[i], true};
    }
  }
}

void StorageTable::erase(StorageRecord* record) {
  const size_t mask = slots_.size() - 1;
  size_t hole = static_cast<size_t>(record - slots_.data());
  for (size_t i = (hole + 1) & mask; slots_[i].id; i = (i + 1) & mask) {
    // Distances run backwards from i, around the end of the table.
    const size_t to_home = (i - home(slots_[i].id)) & mask;
    const size_t to_hole = (i - hole) & mask;
    if (to_home >= to_hole) {
      slots_[hole] = slots_[i];
      hole = i;
    }
  }
  slots_[hole].id = StorageId();
  --size_;
}

void StorageTable::grow() {
  std::vector<StorageRecord> old(slots_.empty() ? kFirstCapacity : slots_.size() * 2);
  old.swap(slots_);
  shift_ = old.empty() ? kFirstShift : shift_ - 1;
  const size_t mask = slots_.size() - 1;
  for (const StorageRecord& record : old) {
    if (!record.id) continue;
    size_t i = home(record.id);
    while (slots_[i].id) i = (i + 1) & mask;
    slots_[i] = record;
  }
}

}  // namespace tidegauge
