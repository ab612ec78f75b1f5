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
  int64_t size_bytes = 0;  ///< as asked for; of segments, all
  uint64_t stream = 0;     ///< as the device names it
  int64_t time_ns = 0;
};

/// Turns the trace of device allocators into events for the Ledger: what is allocated is born, with
/// its bytes rounded up, from the allocator alone (a tensor may claim it later); what is requested
/// to be freed is freed, as torch.cuda.memory_allocated counts. That other streams may still use it
/// (FreeCompleted) and where segments lie concerns the bytes that are reserved, not these.
///
/// O(1) per entry. Not thread-safe.
class DeviceEvents {
 public:
  /// The event that the entry means, if it means any. `next_id` names the memory of an Alloc.
  /// The free of what was allocated before the trace began means none.
  std::optional<Event> consume(const DeviceTraceEntry& entry, StorageId next_id);

  /// Bytes of the segments that the device has given since the trace began, less those that it got
  /// back: negative if it got back older ones.
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
