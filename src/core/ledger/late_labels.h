// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/events/category.h"

namespace tidegauge {

/// A stored split that late labels may correct.
struct StoredSplit {
  uint16_t device_slot = 0;
  uint64_t sequence = 0;
  CategorySplit* split = nullptr;
};

/// The corrections that labels since birth make to splits that were stored earlier (Note [Labels
/// since birth] in labeller.h). Logging a correction is O(1). They are applied ("settled")
/// together: before a read, or when there are as many corrections as splits.
///
///   log       [======a======)   [==b==)        each: these bytes were `from` and count as `to`
///                 [====c====)
///   splits      x      y      z    w           x += a, y += a + c, z unchanged, w += b
///
/// Corrections only add and subtract, so their order does not matter. A sweep over both, sorted by
/// (device, sequence), applies L corrections to M splits in O((M + L) log (M + L)). After that the
/// log is empty; later labels of the same storages start from the corrected splits.
class LateLabels {
 public:
  struct Correction {
    uint64_t from_sequence = 0;
    uint64_t to_sequence = 0;  // exclusive
    int64_t size_bytes = 0;
    uint16_t device_slot = 0;
    Category from{};
    Category to{};
  };
  static_assert(sizeof(Correction) == 32);

  void add(const Correction& correction) {
    corrections_.push_back(correction);
    first_sequence_ = std::min(first_sequence_, correction.from_sequence);
  }

  /// Splits that are older than this sequence number need no correction.
  uint64_t first_sequence() const { return first_sequence_; }

  /// Corrects `splits` and empties the log. The splits may be in any order; they are sorted here.
  void settle(std::vector<StoredSplit>& splits);

  bool empty() const { return corrections_.empty(); }
  size_t size() const { return corrections_.size(); }
  size_t footprint_bytes() const { return corrections_.capacity() * sizeof(Correction); }

 private:
  void correct_one(const StoredSplit& stored) const;
  void sweep(std::vector<StoredSplit>& splits) const;

  std::vector<Correction> corrections_;
  uint64_t first_sequence_ = UINT64_MAX;
};

}  // namespace tidegauge
