// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "capture/storages/storage_registry.h"

namespace tidegauge {

/// The id of a storage of registered CPU memory that every started listener knows; none otherwise.
/// The lock of StorageRegistry must be held.
inline StorageId find_known(c10::StorageImpl* storage) {
  StorageRegistry& registry = StorageRegistry::get();
  const RegisteredStorage* found = registry.cpu_deleter().find(*storage);
  const bool is_known = found != nullptr && found->known_epoch == registry.listeners().epoch();
  return is_known ? found->id : StorageId();
}

}  // namespace tidegauge
