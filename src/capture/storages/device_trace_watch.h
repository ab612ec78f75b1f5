// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include "capture/storages/end_watch.h"
#include "core/events/device_events.h"

namespace tidegauge {

/// Watches device memory with the trace of its allocator. The deleter of such memory is never
/// replaced.
class DeviceTraceWatch final : public EndWatch {
 public:
  DeviceTraceWatch(MemoryTable& memory, EndHandler& handler) : memory_(memory), handler_(handler) {}

  RegisteredStorage* find(c10::StorageImpl& storage) override;
  /// Watches a storage if the allocator has reported its memory and no other storage uses it.
  RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record) override;

  /// Returns the record of new memory, which gets `next_id`; null for an entry that allocates
  /// nothing. If the entry frees memory, reports its end.
  const RegisteredStorage* consume(const DeviceTraceEntry& entry, StorageId next_id);

 private:
  MemoryTable& memory_;
  EndHandler& handler_;
  DeviceEvents events_;
};

}  // namespace tidegauge
