// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "core/events/category.h"
#include "core/events/device.h"

namespace tidegauge {

/// A point in the stream of events, and the activity at that point.
struct Instant {
  uint64_t sequence = 0;  ///< the number of the last event before this point; the first event is 1
  int64_t time_ns = 0;
  uint32_t step = 0;  ///< training steps begun so far; 0 before the first StepMarker
  bool in_optimizer_step = false;
  bool in_collective = false;

  friend bool operator==(const Instant&, const Instant&) = default;
};

/// The bytes of one device at one instant, as stored: late labels may still correct `split`
/// (Note [Labels since birth] in labeller.h), `total_bytes` is final.
struct Moment {
  Instant at;  ///< the first instant with these bytes
  /// The last event at which `split` was current. Not `at.sequence`, because the split of a peak is
  /// copied only when the bytes leave it; it includes late labels that came in between.
  uint64_t state_sequence = 0;
  int64_t total_bytes = 0;
  CategorySplit split;
};

/// The bytes of one device with all late labels applied, as the Ledger returns them. total() of the
/// split is the total of the device.
struct DeviceSplit {
  Device device;
  Instant at;
  CategorySplit split;

  friend bool operator==(const DeviceSplit&, const DeviceSplit&) = default;
};

/// The bytes of all devices that have any, in the order in which the devices were first used. A
/// value. In a peak, each device has its own instant.
struct Snapshot {
  Instant taken;  ///< when the snapshot was taken; for a peak, when it was final or read
  std::vector<DeviceSplit> devices;

  /// Null if the device has no bytes.
  const CategorySplit* find(Device device) const {
    for (const DeviceSplit& entry : devices) {
      if (entry.device == device) return &entry.split;
    }
    return nullptr;
  }

  int64_t total_bytes(Device device) const {
    const CategorySplit* split = find(device);
    return split ? split->total() : 0;
  }

  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

/// The peak of one training step: from its StepMarker to the next.
struct StepPeak {
  uint32_t step = 0;  ///< counted from 1
  bool is_open = false;
  Snapshot bytes;

  friend bool operator==(const StepPeak&, const StepPeak&) = default;
};

}  // namespace tidegauge
