// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ids.h"

namespace tidegauge {

/// Records by the key that they have in them: a flat table with linear probing, at most
/// `kMaxEighths`/8 full.
///
///   [ ][a][b][c][ ]   erase a    Erasing moves later records of the run back into the hole,
///       |  |  home of c          unless that would put one before its home. So there are no
///       home of a and b          tombstones, and finding stays as fast as in a fresh table.
///   [ ][b][c][ ][ ]
///
/// 3/4 full: 1.33 to 2.67 records' worth of memory for each, 4 for the instant in which it grows.
/// Less full: shorter runs. Records move: a pointer is valid until the next insert or erase.
template <typename Record, auto kKey, size_t kMaxEighths = 6>
class FlatTable {
 public:
  using Key = std::remove_cvref_t<decltype(std::declval<Record>().*kKey)>;

  /// nullptr if there is none, also for the key of nothing (0, null).
  const Record* find(Key key) const {
    if (key == Key() || slots_.empty()) return nullptr;
    const size_t mask = slots_.size() - 1;
    for (size_t i = home(key);; i = (i + 1) & mask) {
      if (slots_[i].*kKey == key) return &slots_[i];
      if (slots_[i].*kKey == Key()) return nullptr;
    }
  }
  Record* find(Key key) { return const_cast<Record*>(std::as_const(*this).find(key)); }

  /// The record of `key` (not that of nothing), and whether it is new, and blank.
  std::pair<Record*, bool> insert(Key key) {
    if (size_ == max_size_) grow();
    const size_t mask = slots_.size() - 1;
    for (size_t i = home(key);; i = (i + 1) & mask) {
      if (slots_[i].*kKey == key) return {&slots_[i], false};
      if (slots_[i].*kKey == Key()) {
        slots_[i] = Record{};
        slots_[i].*kKey = key;
        ++size_;
        return {&slots_[i], true};
      }
    }
  }

  void erase(Record* record) {
    const size_t mask = slots_.size() - 1;
    auto hole = static_cast<size_t>(record - slots_.data());
    for (size_t i = (hole + 1) & mask; slots_[i].*kKey != Key(); i = (i + 1) & mask) {
      // Distances run backwards from i, around the end of the table.
      const size_t to_home = (i - home(slots_[i].*kKey)) & mask;
      const size_t to_hole = (i - hole) & mask;
      if (to_home >= to_hole) {
        slots_[hole] = std::move(slots_[i]);
        hole = i;
      }
    }
    if constexpr (std::is_trivially_destructible_v<Record>) {
      slots_[hole].*kKey = Key();
    } else {
      slots_[hole] = Record{};
    }
    --size_;
  }

  /// In no order.
  template <typename Visit>
  void visit(Visit&& visit) const {
    for (const Record& record : slots_) {
      if (record.*kKey != Key()) visit(record);
    }
  }
  /// Likewise. The key stays as it is.
  template <typename Visit>
  void visit(Visit&& visit) {
    for (Record& record : slots_) {
      if (record.*kKey != Key()) visit(record);
    }
  }
  void erase(Key key) {
    if (Record* record = find(key)) erase(record);
  }

  size_t size() const { return size_; }
  size_t footprint_bytes() const { return slots_.capacity() * sizeof(Record); }

 private:
  static constexpr size_t kFirstCapacity = 64;
  static constexpr int kFirstShift = 64 - 6;

  template <typename Tag, typename Value>
  static uint64_t bits(Id<Tag, Value> id) {
    return id.value;
  }
  static uint64_t bits(const void* address) { return reinterpret_cast<uintptr_t>(address); }
  // Fibonacci hashing: keys often come in sequence, or are aligned.
  size_t home(Key key) const {
    return static_cast<size_t>((bits(key) * 0x9E3779B97F4A7C15ull) >> shift_);
  }

  [[gnu::noinline, gnu::cold]] void grow() {
    std::vector<Record> old(slots_.empty() ? kFirstCapacity : slots_.size() * 2);
    old.swap(slots_);
    shift_ = old.empty() ? kFirstShift : shift_ - 1;
    max_size_ = slots_.size() * kMaxEighths / 8;
    const size_t mask = slots_.size() - 1;
    for (Record& record : old) {
      if (record.*kKey == Key()) continue;
      size_t i = home(record.*kKey);
      while (slots_[i].*kKey != Key()) i = (i + 1) & mask;
      slots_[i] = std::move(record);
    }
  }

  std::vector<Record> slots_;  // a power of two, or empty
  size_t size_ = 0;
  size_t max_size_ = 0;
  int shift_ = 64;
};

}  // namespace tidegauge
