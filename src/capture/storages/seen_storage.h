// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/events/device.h"
#include "core/events/ids.h"

namespace c10 {
struct TensorImpl;
}

namespace tidegauge {

/// A storage that was come across.
struct SeenStorage {
  StorageId id;  ///< none: the storage has no bytes and never had
  int64_t size_bytes = 0;
  Device device;
  bool is_new = false;
  bool is_told = false;                     ///< all started trackers know it
  uint64_t* told_epoch = nullptr;           ///< to remember that they do, until the next change
  const void* data = nullptr;               ///< likewise; null for memory that may change unseen
  const c10::TensorImpl* tensor = nullptr;  ///< that it was come across by; may be unknown
  StackId stack{};                          ///< Python's, where it was made; may be unknown
};

}  // namespace tidegauge
