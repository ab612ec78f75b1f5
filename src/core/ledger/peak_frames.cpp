// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/peak_frames.h"

#include <algorithm>

namespace tidegauge {

uint16_t PeakFrames::find_slot(Device device) {
  const auto [slot, is_new] = slots_.try_emplace(device, static_cast<uint16_t>(devices_.size()));
  if (is_new) {
    devices_.push_back(device);
    stacks_.emplace_back(frames_.size());
  }
  return last_slot_ = slot->second;
}

void PeakFrames::open(Kind kind, const Instant& now) {
  for (PeakStack& stack : stacks_) stack.open(now);
  frames_.push_back({now.sequence, kind});
}

std::optional<size_t> PeakFrames::find(Kind kind) const {
  for (size_t i = frames_.size(); i-- > 0;) {
    if (frames_[i].kind == kind) return i;
  }
  return std::nullopt;
}

size_t PeakFrames::find_opened(uint64_t sequence) const {
  const auto found =
      std::lower_bound(frames_.begin(), frames_.end(), sequence,
                       [](const Frame& frame, uint64_t opened) { return frame.opened < opened; });
  return static_cast<size_t>(found - frames_.begin());
}

Snapshot PeakFrames::current(const Instant& now) const {
  Snapshot snapshot{now, {}};
  for (size_t slot = 0; slot < stacks_.size(); ++slot) {
    if (stacks_[slot].total_bytes() == 0) continue;
    snapshot.devices.push_back({devices_[slot], now, stacks_[slot].split()});
  }
  return snapshot;
}

Snapshot PeakFrames::peak(size_t position, const Instant& now) const {
  Snapshot snapshot{now, {}};
  for (size_t slot = 0; slot < stacks_.size(); ++slot) {
    const Moment highest = stacks_[slot].peak(position, now);
    if (highest.total_bytes == 0) continue;
    snapshot.devices.push_back({devices_[slot], highest.at, highest.split});
  }
  return snapshot;
}

size_t PeakFrames::footprint_bytes() const {
  size_t bytes = frames_.capacity() * sizeof(Frame);
  for (const PeakStack& stack : stacks_) bytes += sizeof(PeakStack) + stack.footprint_bytes();
  return bytes;
}

}  // namespace tidegauge
