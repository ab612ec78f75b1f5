// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/ledger/storage_table.h"

namespace tidegauge {

/// What live storages were before their last resize or relabel, so that a label since birth finds
/// the bytes it has to correct (Note [Labels since birth] in labeller.h).
///
///   record:   since 9, 64 B, Gradient          events 9 to now
///   history:  [5, 9) 64 B Temp -> [2, 5) 32 B Temp
///
/// Most storages never have any. Pieces of all storages lie in one pool and are chained by index.
/// A storage that is resized in every step would collect pieces for ever; `trim` drops those that
/// hold no stored moment, since no read can need them any more.
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

  /// Remembers what `record` was from its `since_sequence` up to `to_sequence`, exclusive.
  void remember(StorageRecord& record, uint64_t to_sequence);

  /// Forgets all of a storage, before it is erased.
  void forget(StorageRecord& record);

  /// Gives all pieces of the storage the category; first calls `visit(const Piece&)` for each that
  /// had another one. Does not walk a uniform rest of the chain.
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

  /// Keeps only pieces that contain one of the sequence numbers, which are sorted.
  void trim(const std::vector<uint64_t>& sequences, StorageTable& table);

  size_t size() const { return pieces_.size() - free_count_; }
  size_t footprint_bytes() const { return pieces_.size() * sizeof(Piece); }

 private:
  void prepend(StorageRecord& record, uint32_t index);

  std::deque<Piece> pieces_;  // no doubling: its peak would count per storage
  uint32_t first_free_ = kNoHistory;
  size_t free_count_ = 0;
};

}  // namespace tidegauge
