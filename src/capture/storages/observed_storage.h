// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/events/device.h"
#include "core/events/ids.h"

namespace c10 {
struct TensorImpl;
}

namespace tidegauge {

/// What the registry answers about a storage that an op, a label or a module has shown.
struct ObservedStorage {
  StorageId id;  ///< none: the storage has no bytes and never had any
  int64_t size_bytes = 0;
  Device device;
  bool is_new = false;
  bool is_known_to_all = false;             ///< every started listener knows it
  uint64_t* known_epoch = nullptr;          ///< where StorageRegistry::mark_known notes that
  const void* data = nullptr;               ///< its memory; null if that may change unnoticed
  const c10::TensorImpl* tensor = nullptr;  ///< the tensor that showed it; may be unknown
  StackId stack{};                          ///< Python's stack at its birth; may be unknown
};

}  // namespace tidegauge
