// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/peak_stack.h"

namespace tidegauge {

void PeakStack::store_peak(uint64_t last_sequence) {
  Moment& youngest = segments_.back();
  youngest.split = split_;
  youngest.state_sequence = last_sequence;
  newest_stored_sequence_ = last_sequence;
  peak_is_now_ = false;
}

void PeakStack::open(const Instant& now) {
  leave_state(now.sequence);
  Moment& youngest = segments_.emplace_back();
  youngest.at = now;
  youngest.total_bytes = total_bytes_;
  peak_is_now_ = true;
}

Moment PeakStack::close(size_t frame, const Instant& now) {
  const Moment highest = peak(frame, now);
  const bool is_youngest = frame + 1 == segments_.size();
  if (frame > 0) {
    Moment& older = segments_[frame - 1];
    if (segments_[frame].total_bytes > older.total_bytes) {
      older = segments_[frame];
    } else if (is_youngest) {
      peak_is_now_ = false;
    }
  }
  segments_.erase(segments_.begin() + static_cast<ptrdiff_t>(frame));
  return highest;
}

Moment PeakStack::peak(size_t frame, const Instant& now) const {
  size_t highest = frame;
  for (size_t i = frame + 1; i < segments_.size(); ++i) {
    if (segments_[i].total_bytes > segments_[highest].total_bytes) highest = i;
  }
  Moment moment = segments_[highest];
  if (peak_is_now_ && highest + 1 == segments_.size()) {
    moment.split = split_;
    moment.state_sequence = now.sequence;
  }
  return moment;
}

}  // namespace tidegauge
