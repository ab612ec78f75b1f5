// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/events/event.h"

namespace tidegauge {

/// Kinds of impossible events. The Ledger ignores such events, so that totals stay correct, and
/// counts them, so that users notice the problem.
enum class Anomaly : uint8_t {
  UnknownEvent,  ///< the kind or another value is unknown to this version
  NoStorage,     ///< storage id 0
  NoModule,      ///< module id 0
  NegativeSize,
  TotalTooLarge,    ///< the bytes of a device would not fit into 63 bits
  AlreadyBorn,      ///< birth of a storage that is alive
  ResizeOfUnknown,  ///< the storage is not alive: it was never born or is already freed
  RelabelOfUnknown,
  FreeOfUnknown,  ///< also a double free
  ExitWithoutEnter,
  OptimizerStepEndWithoutBegin,
  CollectiveEndWithoutBegin,
};
inline constexpr size_t kAnomalyCount = 12;
std::string_view to_string(Anomaly anomaly);

class Anomalies {
 public:
  void count(Anomaly anomaly, const Event& event, uint64_t sequence);

  uint64_t total() const;
  uint64_t count_of(Anomaly anomaly) const { return counts_[static_cast<size_t>(anomaly)]; }

  /// One sentence about the first anomaly of this kind; empty if there was none.
  const std::string& first_of(Anomaly anomaly) const {
    return first_[static_cast<size_t>(anomaly)];
  }
  /// One sentence about the very first anomaly; empty if there was none.
  const std::string& first() const { return very_first_; }

  friend bool operator==(const Anomalies&, const Anomalies&) = default;

 private:
  std::array<uint64_t, kAnomalyCount> counts_{};
  std::array<std::string, kAnomalyCount> first_;
  std::string very_first_;
};

}  // namespace tidegauge
