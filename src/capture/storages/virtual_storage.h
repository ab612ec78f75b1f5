// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <utility>

namespace tidegauge {

/// A storage without memory. Its device is meta, but listeners count it on `counted_device`. See
/// simulate/simulated_tensor.h.
struct VirtualStorage : c10::StorageImpl {
  c10::Device counted_device;

 protected:
  template <typename... Arguments>
  explicit VirtualStorage(c10::Device device, Arguments&&... arguments)
      : StorageImpl(std::forward<Arguments>(arguments)...), counted_device(device) {}
};

}  // namespace tidegauge
