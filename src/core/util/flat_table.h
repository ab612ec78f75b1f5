// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/util/id.h"

namespace tidegauge {

/// A hash table of records whose key is one of their members. Linear probing; at most
/// `kMaxEighths`/8 full.
///
///   [ ][a][b][c][ ]   erase a    Erasing moves later records of the run back into the hole,
///       |  |  home of c          unless that would put one before its home. So there are no
///       home of a and b          tombstones, and finding stays as fast as in a fresh table.
///   [ ][b][c][ ][ ]
///
/// The keys are stored a second time in a separate array. So a search reads eight keys per cache
/// line and touches only the record that it finds.
///
/// Memory at 3/4 full: 1.33 to 2.67 times that of record and key; while the table grows, 4 times
/// the record and 2.67 times the key. With a lower load, searches are shorter. Records move: a
/// pointer to a record is valid until the next insert or erase.
template <typename Record, auto kKey, size_t kMaxEighths = 6>
class FlatTable {
 public:
  using Key = std::remove_cvref_t<decltype(std::declval<Record>().*kKey)>;

  /// Null if there is no such record, and for the empty key (0, null).
  const Record* find(Key key) const {
    if (key == Key() || keys_.empty()) return nullptr;
    const size_t mask = keys_.size() - 1;
    for (size_t i = home(key);; i = (i + 1) & mask) {
      if (keys_[i] == key) return &records_[i];
      if (keys_[i] == Key()) return nullptr;
    }
  }
  Record* find(Key key) { return const_cast<Record*>(std::as_const(*this).find(key)); }

  /// Returns the record of `key`, and true if the record is new. A new record is blank except for
  /// its key. `key` must not be the empty key.
  std::pair<Record*, bool> insert(Key key) {
    if (size_ == max_size_) grow();
    const size_t mask = keys_.size() - 1;
    for (size_t i = home(key);; i = (i + 1) & mask) {
      if (keys_[i] == key) return {&records_[i], false};
      if (keys_[i] == Key()) {
        keys_[i] = key;
        records_[i] = Record{};
        records_[i].*kKey = key;
        ++size_;
        return {&records_[i], true};
      }
    }
  }

  void erase(Record* record) {
    const size_t mask = keys_.size() - 1;
    auto hole = static_cast<size_t>(record - records_.data());
    for (size_t i = (hole + 1) & mask; keys_[i] != Key(); i = (i + 1) & mask) {
      // Distances are counted backwards from i and wrap around the start of the table.
      const size_t to_home = (i - home(keys_[i])) & mask;
      const size_t to_hole = (i - hole) & mask;
      if (to_home >= to_hole) {
        keys_[hole] = keys_[i];
        records_[hole] = std::move(records_[i]);
        hole = i;
      }
    }
    keys_[hole] = Key();
    if constexpr (std::is_trivially_destructible_v<Record>) {
      records_[hole].*kKey = Key();
    } else {
      records_[hole] = Record{};
    }
    --size_;
  }

  /// In unspecified order.
  template <typename Visit>
  void visit(Visit&& visit) const {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] != Key()) visit(records_[i]);
    }
  }
  /// The same; `visit` must not change the key.
  template <typename Visit>
  void visit(Visit&& visit) {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] != Key()) visit(records_[i]);
    }
  }
  void erase(Key key) {
    if (Record* record = find(key)) erase(record);
  }

  size_t size() const { return size_; }
  size_t footprint_bytes() const { return keys_.capacity() * (sizeof(Key) + sizeof(Record)); }

 private:
  static constexpr size_t kFirstCapacity = 64;
  static constexpr int kFirstShift = 64 - 6;

  template <typename Tag, typename Value>
  static uint64_t bits(Id<Tag, Value> id) {
    return id.value;
  }
  static uint64_t bits(const void* address) { return reinterpret_cast<uintptr_t>(address); }
  // Fibonacci hashing, since keys are often consecutive or aligned.
  size_t home(Key key) const {
    return static_cast<size_t>((bits(key) * 0x9E3779B97F4A7C15ull) >> shift_);
  }

  [[gnu::noinline, gnu::cold]] void grow() {
    keys_ = std::vector<Key>();  // frees memory early: the records contain the keys, too
    std::vector<Record> old(records_.empty() ? kFirstCapacity : records_.size() * 2);
    old.swap(records_);
    keys_.resize(records_.size());
    shift_ = old.empty() ? kFirstShift : shift_ - 1;
    max_size_ = keys_.size() * kMaxEighths / 8;
    const size_t mask = keys_.size() - 1;
    for (Record& record : old) {
      if (record.*kKey == Key()) continue;
      size_t i = home(record.*kKey);
      while (keys_[i] != Key()) i = (i + 1) & mask;
      keys_[i] = record.*kKey;
      records_[i] = std::move(record);
    }
  }

  std::vector<Key> keys_;  // a power of two, or empty
  std::vector<Record> records_;
  size_t size_ = 0;
  size_t max_size_ = 0;
  int shift_ = 64;
};

}  // namespace tidegauge
