// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "capture/compat/torch_version.h"

namespace tidegauge {

/// Torch's interface to a device, with the functions that older versions lack.
struct DeviceGuard : c10::impl::DeviceGuardImplInterface {
#if !TIDEGAUGE_TORCH_AT_LEAST(2, 11)
  virtual void* getStreamNativeHandle(c10::Stream) const { return nullptr; }
#endif
#if !TIDEGAUGE_TORCH_AT_LEAST(2, 12)
  virtual bool isStreamCapturing(const c10::Stream&) const { return false; }
#endif
};

}  // namespace tidegauge
