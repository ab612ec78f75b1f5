// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include "capture/storages/end_watch.h"
#include "core/events/device_events.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// Watches memory of devices by what their allocator reports. The deleter of such memory is never
/// replaced.
class TIDEGAUGE_API DeviceTrace final : public EndWatch {
 public:
  DeviceTrace(MemoryTable& memory, EndHandler& handler) : memory_(memory), handler_(handler) {}

  RegisteredStorage* find(c10::StorageImpl& storage) override;
  /// Fits a storage whose memory the allocator has reported and no other storage uses.
  RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record) override;

  /// The record of new memory, which gets `next_id`; null for any other entry. Reports the end of
  /// memory that the entry frees.
  const RegisteredStorage* consume(const DeviceTraceEntry& entry, StorageId next_id);

 private:
  MemoryTable& memory_;
  EndHandler& handler_;
  DeviceEvents events_;
};

}  // namespace tidegauge
