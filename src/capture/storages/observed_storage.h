// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/events/device.h"
#include "core/events/ids.h"

namespace c10 {
struct TensorImpl;
}

namespace tidegauge {

/// The result of StorageRegistry::observe.
struct ObservedStorage {
  StorageId id;  ///< none: the storage has no bytes and never had any
  int64_t size_bytes = 0;
  Device device;
  bool is_new = false;
  bool is_known_to_all = false;             ///< every started listener knows it
  uint64_t* known_epoch = nullptr;          ///< where StorageRegistry::mark_known stores the epoch
  const void* data = nullptr;               ///< its memory; null if it may change unnoticed
  const c10::TensorImpl* tensor = nullptr;  ///< the tensor on which it was observed; may be null
  StackId stack{};                          ///< the Python stack of its birth; none if unknown
};

}  // namespace tidegauge
