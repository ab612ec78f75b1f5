// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "core/events/event.h"
#include "core/events/trace_action.h"

namespace tidegauge {

struct DeviceTraceEntry {
  TraceAction action{};
  Device device;
  uint64_t address = 0;    ///< for OutOfMemory: free bytes of the device
  int64_t size_bytes = 0;  ///< requested bytes; for segments, the whole segment
  uint64_t stream = 0;     ///< the device's number or address of the stream
  int64_t time_ns = 0;
};

/// Turns the trace of device allocators into events for the Ledger. An allocation is a birth with
/// rounded bytes and the fact kFromAllocator; a StorageClaimed may follow. A requested free is a
/// free, as in torch.cuda.memory_allocated. Other streams may still use the memory (until
/// FreeCompleted); that, and the addresses of segments, affect only reserved bytes.
///
/// O(1) per entry. Not thread-safe.
class DeviceEvents {
 public:
  /// The event for the entry, if there is one. `next_id` becomes the id of the memory of an Alloc.
  /// There is no event for the free of memory that was allocated before the trace began.
  std::optional<Event> consume(const DeviceTraceEntry& entry, StorageId next_id);

  /// Bytes of the segments that the allocator got from the device since the trace began, minus the
  /// bytes of those that it released. Negative if it released older segments.
  int64_t reserved_bytes(Device device) const;
  int64_t out_of_memory_count() const { return out_of_memory_count_; }

 private:
  StreamId stream_id(uint64_t stream);

  std::unordered_map<uint64_t, StorageId> blocks_;  // devices share one address space
  std::unordered_map<uint64_t, StreamId> streams_;
  std::map<Device, int64_t> reserved_;
  int64_t out_of_memory_count_ = 0;
};

}  // namespace tidegauge
