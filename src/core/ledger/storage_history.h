// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/ledger/storage_table.h"

namespace tidegauge {

/// The earlier sizes and categories of live storages, from before the last resize or relabel. A
/// label since birth must correct these bytes, too (Note [Labels since birth] in labeller.h).
///
///   record:   since 9, 64 B, Gradient          events 9 to now
///   history:  [5, 9) 64 B Temp -> [2, 5) 32 B Temp
///
/// Most storages have no history. The pieces of all storages are in one pool and are chained by
/// index. A storage that is resized in every step would accumulate pieces without end. `trim` drops
/// the pieces that contain no stored moment, because no read can need them.
class StorageHistory {
 public:
  struct Piece {
    StorageId owner;  // 0 marks a free piece
    uint64_t from_sequence = 0;
    uint64_t to_sequence = 0;  // exclusive
    int64_t size_bytes = 0;
    uint32_t next = kNoHistory;
    Category category{};
    bool is_uniform = false;  // all pieces further down the chain have the same category
  };

  /// Adds the size and category that `record` had from `since_sequence` to `to_sequence`,
  /// exclusive.
  void remember(StorageRecord& record, uint64_t to_sequence);

  /// Drops all pieces of a storage. Call before the storage is erased.
  void forget(StorageRecord& record);

  /// Sets the category of all pieces of the storage. Before that, calls `visit(const Piece&)` for
  /// each piece that had another category. Skips the rest of the chain if it is uniform.
  template <typename Visit>
  void relabel(const StorageRecord& record, Category category, Visit visit) {
    for (uint32_t i = record.history; i != kNoHistory; i = pieces_[i].next) {
      Piece& piece = pieces_[i];
      if (piece.category != category) {
        visit(piece);
      } else if (piece.is_uniform) {
        return;
      }
      piece.category = category;
      piece.is_uniform = true;
    }
  }

  /// Keeps only pieces that contain one of the sequence numbers, which must be sorted.
  void trim(const std::vector<uint64_t>& sequences, StorageTable& table);

  size_t size() const { return pieces_.size() - free_count_; }
  size_t footprint_bytes() const { return pieces_.size() * sizeof(Piece); }

 private:
  void prepend(StorageRecord& record, uint32_t index);

  std::deque<Piece> pieces_;  // not a vector: doubling it would increase the peak of our memory
  uint32_t first_free_ = kNoHistory;
  size_t free_count_ = 0;
};

}  // namespace tidegauge
