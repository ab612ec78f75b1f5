// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/ledger/peak_stack.h"
#include "core/ledger/snapshot.h"

namespace tidegauge {

/// One PeakStack per device, all with the same frames open: the run, the step, module calls.
///
///   frames   Run   Step   Call   Call        position 0 is the oldest
///   opened     0      1      5      9        the event that opened the frame, ascending
///
/// Devices get numbers (slots) in the order in which they are first seen. Not thread-safe.
class PeakFrames {
 public:
  enum class Kind : uint8_t { Run, Step, Call };

  /// Opens the frame of the run.
  PeakFrames() { open(Kind::Run, {}); }

  uint16_t slot_of(Device device) {
    if (last_slot_ < devices_.size() && devices_[last_slot_] == device) return last_slot_;
    return find_slot(device);
  }
  PeakStack& operator[](uint16_t slot) { return stacks_[slot]; }
  const PeakStack& operator[](uint16_t slot) const { return stacks_[slot]; }
  const std::vector<Device>& devices() const { return devices_; }
  size_t count() const { return frames_.size(); }

  /// Each event opens at most one frame.
  void open(Kind kind, const Instant& now);
  /// Calls `consume(slot, moment)` with the frame's highest moment on each device that had bytes.
  template <typename Consume>
  void close(size_t position, const Instant& now, Consume consume) {
    for (size_t slot = 0; slot < stacks_.size(); ++slot) {
      const Moment highest = stacks_[slot].close(position, now);
      if (highest.total_bytes > 0) consume(static_cast<uint16_t>(slot), highest);
    }
    frames_.erase(frames_.begin() + static_cast<ptrdiff_t>(position));
  }
  /// The position of the youngest frame of this kind.
  std::optional<size_t> find(Kind kind) const;
  /// The position of the open frame that the event with this number opened.
  size_t find_opened(uint64_t sequence) const;

  Snapshot current(const Instant& now) const;
  /// The highest moments of an open frame.
  Snapshot peak(size_t position, const Instant& now) const;

  /// Calls `visit(slot, Moment&)` for every stored split.
  template <typename Visit>
  void for_each_stored(Visit visit) {
    for (size_t slot = 0; slot < stacks_.size(); ++slot) {
      stacks_[slot].for_each_stored([&](Moment& m) { visit(static_cast<uint16_t>(slot), m); });
    }
  }
  size_t footprint_bytes() const;

 private:
  struct Frame {
    uint64_t opened = 0;
    Kind kind{};
  };
  [[gnu::noinline]] uint16_t find_slot(Device device);

  std::vector<Frame> frames_;
  std::vector<Device> devices_;
  std::vector<PeakStack> stacks_;  // by slot
  std::map<Device, uint16_t> slots_;
  uint16_t last_slot_ = 0;  // most births are on the same device as the previous one
};

}  // namespace tidegauge
