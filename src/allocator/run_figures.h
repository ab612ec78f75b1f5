// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

namespace tidegauge {

/// Memory figures of one device in one run.
struct RunFigures {
  int64_t peak_reserved_bytes = 0;
  int64_t peak_active_bytes = 0;
  /// At the event with the most active bytes while the peak was reserved: bytes reserved but not
  /// active, and bytes active but not requested (rounding, and remainders too small to split off).
  int64_t unused_at_peak_bytes = 0;
  int64_t slack_at_peak_bytes = 0;
  int64_t final_reserved_bytes = 0;
  int64_t final_active_bytes = 0;
  int64_t segments = 0;        ///< at the end; for expandable segments, runs of pages
  int64_t segment_events = 0;  ///< segments allocated, released, mapped, unmapped
  int64_t out_of_memory = 0;   ///< requests that failed

  friend bool operator==(const RunFigures&, const RunFigures&) = default;
};

/// Collects the figures during a run.
class RunMeter {
 public:
  /// Call it when the reserved bytes change, also in the middle of a request.
  void observe_segment(int64_t reserved_bytes) {
    ++figures_.segment_events;
    figures_.peak_reserved_bytes = std::max(figures_.peak_reserved_bytes, reserved_bytes);
  }

  /// Call it at the start and after each request. True if this is the new moment of the peak.
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
