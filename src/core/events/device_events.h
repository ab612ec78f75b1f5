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
  int64_t size_bytes = 0;  ///< as requested; for segments, the whole segment
  uint64_t stream = 0;     ///< as the device names it
  int64_t time_ns = 0;
};

/// Turns the trace of device allocators into events for the Ledger. An allocation is a birth, with
/// its bytes rounded up, known from the allocator alone (a StorageClaimed may follow). A requested
/// free is a free, as torch.cuda.memory_allocated counts. Other streams may still use the memory
/// (FreeCompleted); that and the place of segments matter for reserved bytes only.
///
/// O(1) per entry. Not thread-safe.
class DeviceEvents {
 public:
  /// The event of the entry, if it has one. `next_id` names the memory of an Alloc. The free of
  /// memory that was allocated before the trace began has no event.
  std::optional<Event> consume(const DeviceTraceEntry& entry, StorageId next_id);

  /// Bytes of the segments that the allocator got from the device since the trace began, minus
  /// those it gave back: negative if it gave back older ones.
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
