// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/events/event.h"

namespace tidegauge::trace {

/// An event and its rows in side tables. The rows are ids of the trace file; 0 for none.
struct CodedEvent {
  Event event;
  /// StorageBorn, StorageClaimed: row of `tensors`; AllocationFailed: row of `failures`
  uint32_t tensor = 0;
  uint32_t stack = 0;  ///< StorageBorn, StorageClaimed: row of `stacks`

  friend bool operator==(const CodedEvent&, const CodedEvent&) = default;
};

/// Encodes batches of events, in about 6 bytes per event of 48. Each batch can be read without the
/// others.
///
///   kind  fields   the fields that are present, in the order of their bits
///   1     1 to 3   time +3 | storage +1 | size 4096 | ...
///
/// Numbers are LEB128. Storage, module and time are stored as the zigzag-coded difference from the
/// last stored value, thread and device only when they change, all others only when they are not 0.
/// Every Event is decoded to the same value, even an invalid one, because replays must count the
/// same anomalies.
std::vector<uint8_t> encode_batch(std::span<const CodedEvent> events);

/// Appends exactly `count` events. Returns false if `bytes`, which may be damaged, do not contain
/// as many.
[[nodiscard]] bool decode_batch(std::span<const uint8_t> bytes, uint64_t count,
                                std::vector<CodedEvent>& events);

/// FNV-1a with 63 bits, because SQLite's integers are signed.
int64_t checksum(std::span<const uint8_t> bytes);

}  // namespace tidegauge::trace
