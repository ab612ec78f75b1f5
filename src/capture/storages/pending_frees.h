// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "capture/compat/thread_local.h"
#include "capture/storages/registered_storage.h"

namespace tidegauge {

/// Memory that the running op (or resize) of this thread has freed: almost always none. Only at the
/// end of the op is it known whether a storage was freed, or was resized and got other memory.
struct alignas(16) PendingFrees {
  int depth = 0;  ///< ops run within each other
  uint32_t count = 0;
  std::array<RegisteredStorage, 4>* freed = nullptr;  ///< null: none

  static PendingFrees& of_this_thread() { return ThreadLocal<PendingFrees>::get(); }

  /// False if it does not fit: then it has to be reported at once, at worst as a free and a birth
  /// for a resize. An op frees four storages at most in practice.
  bool add(const RegisteredStorage& ended);
  RegisteredStorage take(size_t position);
  void clear();
};

}  // namespace tidegauge
