// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/category.h"
#include "core/ids.h"

namespace tidegauge {

inline constexpr uint32_t kNoHistory = UINT32_MAX;

/// One live storage. `since_sequence` is the event from which on size and category are what they
/// are now; what was before is in the StorageHistory, if anybody can still ask for it.
struct StorageRecord {
  StorageId id;
  int64_t size_bytes = 0;
  uint64_t since_sequence = 0;
  uint32_t history = kNoHistory;
  uint16_t device_slot = 0;
  Category category{};
};
static_assert(sizeof(StorageRecord) == 32);

/// The live storages by id: a flat table with linear probing, at most 3/4 full.
///
///   [ ][a][b][c][ ]   erase a    Erasing moves later records of the run back into the hole,
///       |  |  home of c          unless that would put one before its home. So there are no
///       home of a and b          tombstones, and finding stays as fast as in a fresh table.
///   [ ][b][c][ ][ ]
///
/// 32 bytes a record: 43 to 85 bytes per live storage, 128 for the instant in which it grows.
/// Records move: a pointer is valid until the next insert or erase.
class StorageTable {
 public:
  /// nullptr if there is none, also for id 0.
  const StorageRecord* find(StorageId id) const {
    if (!id || slots_.empty()) return nullptr;
    const size_t mask = slots_.size() - 1;
    for (size_t i = home(id);; i = (i + 1) & mask) {
      if (slots_[i].id == id) return &slots_[i];
      if (!slots_[i].id) return nullptr;
    }
  }
  StorageRecord* find(StorageId id) {
    return const_cast<StorageRecord*>(std::as_const(*this).find(id));
  }

  /// The record of `id` (not 0), and whether it is new.
  std::pair<StorageRecord*, bool> insert(StorageId id);

  void erase(StorageRecord* record);

  /// In no order.
  template <typename Visit>
  void visit(Visit&& visit) const {
    for (const StorageRecord& record : slots_) {
      if (record.id) visit(record);
    }
  }

  size_t size() const { return size_; }
  size_t footprint_bytes() const { return slots_.capacity() * sizeof(StorageRecord); }

 private:
  // Fibonacci hashing: storages are often numbered in sequence, or by aligned addresses.
  size_t home(StorageId id) const {
    return static_cast<size_t>((id.value * 0x9E3779B97F4A7C15ull) >> shift_);
  }
  void grow();

  std::vector<StorageRecord> slots_;  // a power of two, or empty; id 0 marks a free slot
  size_t size_ = 0;
  int shift_ = 64;
};

}  // namespace tidegauge
