// SPDX-License-Identifier: BSD-3-Clause
#include "core/events/device.h"

#include <array>
#include <string_view>

namespace tidegauge {
namespace {

// In the order of c10/core/DeviceType.h, which is append-only.
constexpr std::array<std::string_view, 21> kTypeNames = {
    "cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
    "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
    "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",  "privateuseone",
};

}  // namespace

std::string to_string(Device device) {
  std::string text;
  if (device.type >= 0 && static_cast<size_t>(device.type) < kTypeNames.size()) {
    text = kTypeNames[static_cast<size_t>(device.type)];
  } else {
    text = "type" + std::to_string(device.type);
  }
  if (device.index >= 0) text += ":" + std::to_string(device.index);
  return text;
}

}  // namespace tidegauge
