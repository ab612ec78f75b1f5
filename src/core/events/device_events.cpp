// SPDX-License-Identifier: BSD-3-Clause
#include "core/events/device_events.h"

#include "core/events/event_factory.h"
#include "core/util/device_blocks.h"

namespace tidegauge {

std::optional<Event> DeviceEvents::consume(const DeviceTraceEntry& entry, StorageId next_id) {
  const events::Origin origin{entry.time_ns, {}, entry.device};
  switch (entry.action) {
    case TraceAction::Alloc:
      blocks_[entry.address] = next_id;
      return events::storage_born(origin, next_id, round_up(entry.size_bytes, kDeviceBlockBytes),
                                  kFromAllocator, {}, stream_id(entry.stream));
    case TraceAction::FreeRequested: {
      const auto it = blocks_.find(entry.address);
      if (it == blocks_.end()) return std::nullopt;
      const StorageId id = it->second;
      blocks_.erase(it);
      return events::storage_freed(origin, id);
    }
    case TraceAction::SegmentAlloc:
    case TraceAction::SegmentMap:
      reserved_[entry.device] += entry.size_bytes;
      return std::nullopt;
    case TraceAction::SegmentFree:
    case TraceAction::SegmentUnmap:
      reserved_[entry.device] -= entry.size_bytes;
      return std::nullopt;
    case TraceAction::OutOfMemory:
      ++out_of_memory_count_;
      return std::nullopt;
    case TraceAction::FreeCompleted:
    case TraceAction::Snapshot:
      return std::nullopt;
  }
  return std::nullopt;
}

int64_t DeviceEvents::reserved_bytes(Device device) const {
  const auto it = reserved_.find(device);
  return it != reserved_.end() ? it->second : 0;
}

StreamId DeviceEvents::stream_id(uint64_t stream) {
  // The default stream has the number 0 on every device. As an id, 0 means none.
  if (stream == 0) return {};
  const auto next = static_cast<uint16_t>(streams_.size() + 1);
  return streams_.try_emplace(stream, StreamId(next)).first->second;
}

}  // namespace tidegauge
