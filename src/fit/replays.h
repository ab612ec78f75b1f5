// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "allocator/request_stream.h"

namespace tidegauge {

/// Simulations of one run's requests under several settings and limits. Each is made once.
///
/// The requests must outlive this and may not grow. Not thread-safe.
class Replays {
 public:
  explicit Replays(const RequestStream& requests, TieRule tie = TieRule::SegmentCounter)
      : requests_(requests), tie_(tie) {}

  /// On a device of `total_bytes`, of which `outside_bytes` are not the allocator's; by default,
  /// without a limit. UsageError for settings that torch refuses.
  const SimulatedRun& run(const std::string& alloc_conf, int64_t total_bytes = kNoLimit,
                          int64_t outside_bytes = 0);
  /// Without a limit: the segments at the moment that `unused_at_peak_bytes` of the figures is of.
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
