// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

namespace tidegauge {

/// What a run did with the memory of one device.
struct RunFigures {
  int64_t peak_reserved_bytes = 0;
  int64_t peak_active_bytes = 0;
  /// While the peak was reserved, at the event with most active: reserved but not active, and
  /// active but not requested (rounding, and what was too little to split off).
  int64_t unused_at_peak_bytes = 0;
  int64_t slack_at_peak_bytes = 0;
  int64_t final_reserved_bytes = 0;
  int64_t final_active_bytes = 0;
  int64_t segments = 0;        ///< at the end; runs of pages of expandable ones
  int64_t segment_events = 0;  ///< segments got, released, mapped, unmapped
  int64_t out_of_memory = 0;   ///< requests that failed

  friend bool operator==(const RunFigures&, const RunFigures&) = default;
};

/// Takes the figures of a run while it goes.
class RunMeter {
 public:
  /// The reserve changed, perhaps in the middle of a request.
  void observe_segment(int64_t reserved_bytes) {
    ++figures_.segment_events;
    figures_.peak_reserved_bytes = std::max(figures_.peak_reserved_bytes, reserved_bytes);
  }

  /// Between two requests, and at the start. Whether the figures at the peak are of now.
  bool observe(int64_t reserved_bytes, int64_t active_bytes, int64_t requested_bytes) {
    figures_.peak_reserved_bytes = std::max(figures_.peak_reserved_bytes, reserved_bytes);
    figures_.peak_active_bytes = std::max(figures_.peak_active_bytes, active_bytes);
    figures_.final_reserved_bytes = reserved_bytes;
    figures_.final_active_bytes = active_bytes;
    const int64_t unused_bytes = reserved_bytes - active_bytes;
    const bool is_peak =
        reserved_bytes > highest_bytes_ ||
        (reserved_bytes == highest_bytes_ && unused_bytes < figures_.unused_at_peak_bytes);
    if (is_peak) {
      highest_bytes_ = reserved_bytes;
      figures_.unused_at_peak_bytes = unused_bytes;
      figures_.slack_at_peak_bytes = active_bytes - requested_bytes;
    }
    return is_peak;
  }

  void observe_out_of_memory() { ++figures_.out_of_memory; }

  RunFigures finish(int64_t segments) {
    figures_.segments = segments;
    return figures_;
  }

 private:
  RunFigures figures_;
  int64_t highest_bytes_ = -1;
};

}  // namespace tidegauge
