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

/// The corrections that labels since birth owe to splits stored earlier (Note [Labels since birth]
/// in labeller.h). Logging one is O(1). They are settled together: before a read, or when there are
/// as many of them as splits to correct.
///
///   log       [======a======)   [==b==)        each: these bytes were `from`, count them as `to`
///                 [====c====)
///   splits      x      y      z    w           x += a, y += a + c, z as it is, w += b
///
/// Corrections only add and subtract, so their order is free: a sweep over both, sorted by
/// (device, sequence), settles M splits with L corrections in O((M + L) log (M + L)). Once settled
/// the log is empty; later labels of the same storages start from the corrected splits.
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

  /// Splits from before this one need no correction.
  uint64_t first_sequence() const { return first_sequence_; }

  /// Corrects `splits`, which may be in any order and are sorted here; empties the log.
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
