// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>

#include "core/events/device.h"
#include "core/events/ids.h"
#include "core/util/flat_table.h"

namespace tidegauge {

/// The record of one storage, or of allocated memory whose storage has not been observed yet.
struct alignas(64) RegisteredStorage {
  StorageId id;
  int64_t size_bytes = 0;
  Device device;
  const c10::StorageImpl* storage = nullptr;  ///< compared, never dereferenced; null: not observed
  c10::DeleterFnPtr deleter = nullptr;        ///< the deleter that ours replaced; null: none
  uint64_t known_epoch = 0;    ///< the Listeners::epoch in which all listeners knew it
  bool is_unobserved = false;  ///< registered, but not observed yet
  const void* data = nullptr;  ///< key of the MemoryTable; null: not in the table
};

/// Registered storages by the address of their memory. Host and devices share one address space.
using MemoryTable = FlatTable<RegisteredStorage, &RegisteredStorage::data, 3>;

}  // namespace tidegauge
