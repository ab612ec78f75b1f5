// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include "capture/storages/registered_storage.h"

namespace tidegauge {

/// Gets the ends that an EndWatch notices, with the lock of the registry held.
class EndHandler {
 public:
  /// The memory was freed. Its storage may live on with other memory.
  virtual void memory_ended(const RegisteredStorage& ended) = 0;
  /// The storage itself is gone.
  virtual void storage_ended(const RegisteredStorage& ended) = 0;

 protected:
  ~EndHandler() = default;
};

/// One way to notice that a storage has ended. There are four:
///
///   CpuDeleter      memory of the CPU allocator: our deleter replaces the one of the DataPtr
///   DeviceTrace     memory of a device: its allocator reports what it allocates and frees
///   OwnContext      meta, fake and simulated storages: they have no memory and carry our context
///   WeakReferences  everything else (numpy, shared memory, from_blob, mapped files): the storage
///                   stays as it is, and a weak reference is polled
///
/// Called with the lock of the registry held.
class EndWatch {
 public:
  /// The record of a storage that this way watches; null if it does not watch it.
  virtual RegisteredStorage* find(c10::StorageImpl& storage) = 0;
  /// Starts to watch the storage. Null, with nothing changed, if this way does not fit it.
  virtual RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record) = 0;

 protected:
  ~EndWatch() = default;
};

}  // namespace tidegauge
