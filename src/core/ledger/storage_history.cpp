// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/storage_history.h"

#include <algorithm>

namespace tidegauge {

void StorageHistory::remember(StorageRecord& record, uint64_t to_sequence) {
  uint32_t index = first_free_;
  if (index != kNoHistory) {
    first_free_ = pieces_[index].next;
    --free_count_;
  } else {
    index = static_cast<uint32_t>(pieces_.size());
    pieces_.emplace_back();
  }
  Piece& piece = pieces_[index];
  piece.owner = record.id;
  piece.from_sequence = record.since_sequence;
  piece.to_sequence = to_sequence;
  piece.size_bytes = record.size_bytes;
  piece.category = record.category;
  prepend(record, index);
}

void StorageHistory::prepend(StorageRecord& record, uint32_t index) {
  Piece& piece = pieces_[index];
  piece.next = record.history;
  piece.is_uniform = true;
  if (record.history != kNoHistory) {
    const Piece& rest = pieces_[record.history];
    piece.is_uniform = rest.is_uniform && rest.category == piece.category;
  }
  record.history = index;
}

void StorageHistory::forget(StorageRecord& record) {
  while (record.history != kNoHistory) {
    Piece& piece = pieces_[record.history];
    const uint32_t next = piece.next;
    piece.owner = StorageId();
    piece.next = first_free_;
    first_free_ = record.history;
    ++free_count_;
    record.history = next;
  }
}

void StorageHistory::trim(const std::vector<uint64_t>& sequences, StorageTable& table) {
  for (const Piece& piece : pieces_) {
    if (piece.owner) table.find(piece.owner)->history = kNoHistory;
  }
  uint32_t kept = 0;
  for (const Piece& piece : pieces_) {
    if (!piece.owner) continue;
    const auto first = std::lower_bound(sequences.begin(), sequences.end(), piece.from_sequence);
    if (first == sequences.end() || *first >= piece.to_sequence) continue;
    StorageRecord& owner = *table.find(piece.owner);
    pieces_[kept] = piece;
    prepend(owner, kept++);
  }
  pieces_.resize(kept);
  first_free_ = kNoHistory;
  free_count_ = 0;
}

}  // namespace tidegauge
