// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/events/event.h"

namespace tidegauge::trace {

/// An event and what side tables know of it; ids of the trace file, 0 for none.
struct CodedEvent {
  Event event;
  /// StorageBorn, StorageClaimed: row of `tensors`; AllocationFailed: row of `failures`
  uint32_t tensor = 0;
  uint32_t stack = 0;  ///< StorageBorn, StorageClaimed: row of `stacks`

  friend bool operator==(const CodedEvent&, const CodedEvent&) = default;
};

/// Batches as bytes, about 6 for an event of 48. Each batch can be read without the others.
///
///   kind  fields   what differs from what was to be expected, in the order of the bits
///   1     1 to 3   time +3 | storage +1 | size 4096 | ...
///
/// Numbers are LEB128; those that may go down are differences, zigzag-coded. Storage, module and
/// time are told as the difference from the last one told, thread and device only when they change,
/// all else only when it is not 0. Every Event there can be comes back equal, also an impossible
/// one, since replays must count the same anomalies.
std::vector<uint8_t> encode_batch(std::span<const CodedEvent> events);

/// Appends exactly `count` events. False if the bytes are not those of so many, whatever they are.
[[nodiscard]] bool decode_batch(std::span<const uint8_t> bytes, uint64_t count,
                                std::vector<CodedEvent>& events);

/// FNV-1a, in 63 bits since SQLite's integers have a sign.
int64_t checksum(std::span<const uint8_t> bytes);

}  // namespace tidegauge::trace
