// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>

#include "core/events/device.h"
#include "core/events/ids.h"
#include "core/util/flat_table.h"

namespace tidegauge {

/// What the registry keeps of one storage, or of memory that no storage has been observed for.
struct alignas(64) RegisteredStorage {
  StorageId id;
  int64_t size_bytes = 0;
  Device device;
  const c10::StorageImpl* storage = nullptr;  ///< compared, never followed; null: only allocated
  c10::DeleterFnPtr deleter = nullptr;        ///< the deleter that ours replaced; null: none
  uint64_t known_epoch = 0;                   ///< the Listeners::epoch in which all knew it
  bool is_unobserved = false;                 ///< registered before any op has shown it
  const void* data = nullptr;                 ///< key of the MemoryTable; null: not in it
};

/// Registered storages by the address of their memory. Host and devices share one address space.
using MemoryTable = FlatTable<RegisteredStorage, &RegisteredStorage::data, 3>;

}  // namespace tidegauge
