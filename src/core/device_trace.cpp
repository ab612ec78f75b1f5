// SPDX-License-Identifier: BSD-3-Clause
#include "core/device_trace.h"

#include "core/event_factory.h"

namespace tidegauge {

std::optional<Event> DeviceTrace::consume(const DeviceTraceEntry& entry, StorageId next_id) {
  const events::Origin origin{entry.time_ns, {}, entry.device};
  switch (entry.action) {
    case DeviceAction::Alloc:
      blocks_[entry.address] = next_id;
      return events::storage_born(origin, next_id, round_device_bytes(entry.size_bytes),
                                  kFromAllocator, {}, stream_id(entry.stream));
    case DeviceAction::FreeRequested: {
      const auto it = blocks_.find(entry.address);
      if (it == blocks_.end()) return std::nullopt;
      const StorageId id = it->second;
      blocks_.erase(it);
      return events::storage_freed(origin, id);
    }
    case DeviceAction::SegmentAlloc:
    case DeviceAction::SegmentMap:
      reserved_[entry.device] += entry.size_bytes;
      return std::nullopt;
    case DeviceAction::SegmentFree:
    case DeviceAction::SegmentUnmap:
      reserved_[entry.device] -= entry.size_bytes;
      return std::nullopt;
    case DeviceAction::OutOfMemory:
      ++out_of_memory_count_;
      return std::nullopt;
    case DeviceAction::FreeCompleted:
    case DeviceAction::Snapshot:
      return std::nullopt;
  }
  return std::nullopt;
}

int64_t DeviceTrace::reserved_bytes(Device device) const {
  const auto it = reserved_.find(device);
  return it != reserved_.end() ? it->second : 0;
}

StreamId DeviceTrace::stream_id(uint64_t stream) {
  // The default stream is 0 everywhere, which as an id means none.
  if (stream == 0) return {};
  const auto next = static_cast<uint16_t>(streams_.size() + 1);
  return streams_.try_emplace(stream, StreamId(next)).first->second;
}

}  // namespace tidegauge
