// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/storage_table.h"

namespace tidegauge {

/// What live storages were before their last resize or relabel, so that a label since birth finds
/// the bytes it has to correct (Note [Labels since birth] in labeller.h).
///
///   record:   since 9, 64 B, Gradient          events 9 to now
///   history:  [5, 9) 64 B Temp -> [2, 5) 32 B Temp
///
/// Most storages never have any. Pieces of all storages lie in one pool and are chained by index.
/// A storage that is resized in every step would gather pieces for ever; `trim` drops those that
/// hold no stored moment, since nobody can ask for them any more.
class StorageHistory {
 public:
  struct Piece {
    StorageId owner;  // 0 marks a free piece
    uint64_t from_sequence = 0;
    uint64_t to_sequence = 0;  // exclusive
    int64_t size_bytes = 0;
    uint32_t next = kNoHistory;
    Category category{};
  };

  /// Remembers what `record` was from its `since_sequence` up to `to_sequence`, exclusive.
  void remember(StorageRecord& record, uint64_t to_sequence);

  /// Forgets all of a storage, before it is erased.
  void forget(StorageRecord& record);

  /// Calls `visit(Piece&)` for each piece of the storage, in no particular order.
  template <typename Visit>
  void for_each(const StorageRecord& record, Visit visit) {
    for (uint32_t i = record.history; i != kNoHistory; i = pieces_[i].next) visit(pieces_[i]);
  }

  /// Keeps only pieces that hold one of the sequence numbers, which are sorted.
  void trim(const std::vector<uint64_t>& sequences, StorageTable& table);

  size_t size() const { return pieces_.size() - free_count_; }
  size_t footprint_bytes() const { return pieces_.size() * sizeof(Piece); }

 private:
  std::deque<Piece> pieces_;  // no doubling: its peak would count per storage
  uint32_t first_free_ = kNoHistory;
  size_t free_count_ = 0;
};

}  // namespace tidegauge
