// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "capture/storages/capture_listener.h"

namespace tidegauge::fast {

/// The only listener of the process, if the fast path of sole_listener.h may serve it. Guarded by
/// the lock of StorageRegistry.
struct alignas(64) SoleListener {
  CaptureListener* listener = nullptr;  ///< null: take the general path
  CaptureLog* log = nullptr;            ///< of `listener`
};
inline constinit SoleListener sole;

}  // namespace tidegauge::fast
