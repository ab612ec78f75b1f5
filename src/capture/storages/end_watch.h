// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include "capture/storages/registered_storage.h"

namespace tidegauge {

/// Receives the ends that an EndWatch notices. Called with the lock of the registry held.
class EndHandler {
 public:
  /// The memory was freed. Its storage may still exist, with other memory.
  virtual void memory_ended(const RegisteredStorage& ended) = 0;
  /// The storage itself was destroyed.
  virtual void storage_ended(const RegisteredStorage& ended) = 0;

 protected:
  ~EndHandler() = default;
};

/// One way to notice that a storage has ended. There are four:
///
///   CpuDeleter        memory of the CPU allocator: our deleter replaces the one of the DataPtr
///   DeviceTraceWatch  memory of a device: its allocator reports what it allocates and frees
///   OwnContext        meta, fake and simulated storages: they have no memory, so their DataPtr can
///                     hold our context
///   WeakReferences    everything else (numpy, shared memory, from_blob, mapped files): the storage
///                     is not changed, and a weak reference is polled
///
/// Called with the lock of the registry held.
class EndWatch {
 public:
  /// The record of the storage; null if this EndWatch does not watch it.
  virtual RegisteredStorage* find(c10::StorageImpl& storage) = 0;
  /// Starts to watch the storage. Returns null, without effect, if this EndWatch cannot watch it.
  virtual RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record) = 0;

 protected:
  ~EndWatch() = default;
};

}  // namespace tidegauge
