// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/device_trace_watch.h"

#include "core/events/event.h"

namespace tidegauge {

RegisteredStorage* DeviceTraceWatch::find(c10::StorageImpl& storage) {
  RegisteredStorage* found = memory_.find(storage._mutable_data_ptr_no_checks().get());
  return found != nullptr && found->deleter == nullptr ? found : nullptr;
}

RegisteredStorage* DeviceTraceWatch::watch(c10::StorageImpl& storage,
                                           const RegisteredStorage& record) {
  RegisteredStorage* place = find(storage);
  if (place == nullptr || place->storage != nullptr) return nullptr;
  const void* data = place->data;
  *place = record;
  place->deleter = nullptr;
  place->data = data;
  return place;
}

const RegisteredStorage* DeviceTraceWatch::consume(const DeviceTraceEntry& entry,
                                                   StorageId next_id) {
  const auto event = events_.consume(entry, next_id);
  if (!event) return nullptr;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a key of the table, never dereferenced
  const auto* data = reinterpret_cast<const void*>(entry.address);
  if (event->kind == EventKind::StorageBorn) {
    RegisteredStorage* place = memory_.insert(data).first;
    *place = {.id = event->storage,
              .size_bytes = event->size_bytes,
              .device = entry.device,
              .data = data};
    return place;
  }
  if (RegisteredStorage* found = memory_.find(data)) {
    const RegisteredStorage ended = *found;
    memory_.erase(found);
    handler_.memory_ended(ended);
  }
  return nullptr;
}

}  // namespace tidegauge
