// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ledger/snapshot.h"

namespace tidegauge {

/// The bytes of one device by category, and the highest moment of every open frame (module call,
/// step, whole run) at O(1) per change.
///
///   bytes  ^        .--.          Frames open and close like brackets, except that backward
///          |   .-. /    \ .-.     closes them out of order. Each frame keeps only the highest
///          |  /   v      v   \    moment *while it was the youngest*, its segment:
///          +--[A--[B----]------]-->
///             a    b    a'        A's peak = max(a, peak(B), a')
///
/// A change touches only the youngest segment. Closing a frame folds its segment into the next
/// older one, which was open all that time. So no change walks over all frames. Segments of open
/// frames are in the order of time, and of two equal ones the older wins: a peak is the *first*
/// instant with the most bytes.
///
/// Bytes often rise many times in a row, and each rise is a new maximum. So a maximum is copied
/// only before the first change that leaves it; until then it is the current state
/// (`peak_is_now_`).
///
/// Frames are identified by position, 0 for the oldest. Closing a frame moves the younger ones
/// down. Not thread-safe. The caller must not remove more bytes than there are.
class PeakStack {
 public:
  /// A device without bytes so far, on which `frames` frames are open; at least one.
  explicit PeakStack(size_t frames) : segments_(frames) {}

  const CategorySplit& split() const { return split_; }
  int64_t total_bytes() const { return total_bytes_; }

  /// Returns false, without effect, if the total would not fit into 63 bits.
  bool add(Category category, int64_t bytes, const Instant& now) {
    int64_t total = 0;
    if (__builtin_add_overflow(total_bytes_, bytes, &total)) return false;
    total_bytes_ = total;
    split_[category] += bytes;
    Moment& youngest = segments_.back();
    if (total > youngest.total_bytes) {
      youngest.total_bytes = total;
      youngest.at = now;
      peak_is_now_ = true;
    }
    return true;
  }

  void remove(Category category, int64_t bytes, const Instant& now) {
    if (bytes == 0) return;
    leave_state(now.sequence - 1);
    total_bytes_ -= bytes;
    split_[category] -= bytes;
  }

  /// A relabel from now on.
  void move(Category from, Category to, int64_t bytes, const Instant& now) {
    if (bytes == 0) return;
    leave_state(now.sequence - 1);
    correct(from, to, bytes);
  }

  /// The part of a relabel since birth that affects the present. If the peak is now, it stays the
  /// peak and gets the new label.
  void correct(Category from, Category to, int64_t bytes) {
    split_[from] -= bytes;
    split_[to] += bytes;
  }

  void open(const Instant& now);

  /// `frame` need not be the youngest. Returns its highest moment. O(frames younger than it).
  Moment close(size_t frame, const Instant& now);

  /// The highest moment so far of an open frame. O(frames younger than it).
  Moment peak(size_t frame, const Instant& now) const;

  /// The newest event whose split was copied. No stored split is newer.
  uint64_t newest_stored_sequence() const { return newest_stored_sequence_; }

  /// Calls `visit(Moment&)` for every stored split.
  template <typename Visit>
  void for_each_stored(Visit visit) {
    const size_t stored = segments_.size() - (peak_is_now_ ? 1 : 0);
    for (size_t i = 0; i < stored; ++i) {
      if (segments_[i].total_bytes > 0) visit(segments_[i]);
    }
  }

  size_t footprint_bytes() const { return segments_.capacity() * sizeof(Moment); }

 private:
  void leave_state(uint64_t last_sequence) {
    if (peak_is_now_) store_peak(last_sequence);
  }
  void store_peak(uint64_t last_sequence);

  CategorySplit split_;
  int64_t total_bytes_ = 0;
  uint64_t newest_stored_sequence_ = 0;
  bool peak_is_now_ = true;  // of the youngest segment; all older ones are stored
  std::vector<Moment> segments_;
};

}  // namespace tidegauge
