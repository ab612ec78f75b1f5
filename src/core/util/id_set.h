// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidegauge {

/// A set of ids that are assigned consecutively. One bit per id, so hundreds fit into a cache line.
template <typename Id>
class IdSet {
 public:
  bool contains(Id id) const {
    return word_of(id) < words_.size() && (words_[word_of(id)] & bit_of(id)) != 0;
  }
  void insert(Id id) {
    if (word_of(id) >= words_.size()) words_.resize(word_of(id) + 1);
    words_[word_of(id)] |= bit_of(id);
  }
  void erase(Id id) {
    if (word_of(id) < words_.size()) words_[word_of(id)] &= ~bit_of(id);
  }

 private:
  static size_t word_of(Id id) { return id.value / 64; }
  static uint64_t bit_of(Id id) { return uint64_t{1} << (id.value % 64); }

  std::vector<uint64_t> words_;
};

}  // namespace tidegauge
