// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <utility>

namespace tidegauge {

/// A storage that torch sees on meta, and trackers on the device that it claims to be on; see
/// simulate/simulated_tensor.h.
struct ClaimedStorage : c10::StorageImpl {
  c10::Device claimed_device;

 protected:
  template <typename... Arguments>
  explicit ClaimedStorage(c10::Device device, Arguments&&... arguments)
      : StorageImpl(std::forward<Arguments>(arguments)...), claimed_device(device) {}
};

}  // namespace tidegauge
