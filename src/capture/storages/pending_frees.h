// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "capture/compat/thread_local.h"
#include "capture/storages/registered_storage.h"

namespace tidegauge {

/// Memory that the running op (or resize) of this thread has freed; almost always none. Only the
/// end of the op shows whether the storage was freed, or was resized and has new memory.
struct alignas(16) PendingFrees {
  int depth = 0;  ///< nesting depth of ops
  uint32_t count = 0;
  std::array<RegisteredStorage, 4>* freed = nullptr;  ///< null: none

  static PendingFrees& of_this_thread() { return ThreadLocal<PendingFrees>::get(); }

  /// Returns false if there is no room. Then the free must be reported immediately, so a resize
  /// would show as a free and a birth. In practice an op frees at most four storages.
  bool add(const RegisteredStorage& ended);
  RegisteredStorage take(size_t position);
  void clear();
};

}  // namespace tidegauge
