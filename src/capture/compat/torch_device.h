// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "core/events/device.h"

namespace tidegauge {

inline Device to_device(c10::Device device) {
  return {static_cast<int8_t>(device.type()), static_cast<int8_t>(device.index())};
}

}  // namespace tidegauge
