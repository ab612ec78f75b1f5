// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "allocator/request_stream.h"

namespace tidegauge {

/// Simulations of the requests of one run with several settings and limits. Each simulation runs
/// once and is then cached.
///
/// The requests must outlive this object and must not change. Not thread-safe.
class Replays {
 public:
  explicit Replays(const RequestStream& requests, TieRule tie = TieRule::SegmentCounter)
      : requests_(requests), tie_(tie) {}

  /// Simulates a device of `total_bytes`, of which torch's allocator cannot use `outside_bytes`; by
  /// default there is no limit. Throws UsageError for settings that torch rejects.
  const SimulatedRun& run(const std::string& alloc_conf, int64_t total_bytes = kNoLimit,
                          int64_t outside_bytes = 0);
  /// The segments, without a limit, at the moment to which `unused_at_peak_bytes` of the figures
  /// refers.
  Layout layout_at_peak(const std::string& alloc_conf);
  const RequestStream& requests() const { return requests_; }
  TieRule tie() const { return tie_; }

 private:
  AllocatorOptions make_options(const std::string& alloc_conf, int64_t total_bytes,
                                int64_t outside_bytes) const;

  const RequestStream& requests_;
  const TieRule tie_;
  std::map<std::tuple<std::string, int64_t, int64_t>, SimulatedRun> runs_;
};

}  // namespace tidegauge
