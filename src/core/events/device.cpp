// SPDX-License-Identifier: BSD-3-Clause
#include "core/events/device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "core/util/quote.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

// In the order of c10/core/DeviceType.h, which is append-only.
constexpr std::array<std::string_view, 21> kTypeNames = {
    "cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
    "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
    "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",  "privateuseone",
};

std::optional<int8_t> parse_number(std::string_view text) {
  int8_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<int8_t> parse_type(std::string_view text) {
  const auto* const found = std::find(kTypeNames.begin(), kTypeNames.end(), text);
  if (found != kTypeNames.end()) return static_cast<int8_t>(found - kTypeNames.begin());
  if (!text.starts_with("type")) return std::nullopt;
  return parse_number(text.substr(4));
}

}  // namespace

std::string to_string(Device device) {
  std::string text;
  if (device.type >= 0 && static_cast<size_t>(device.type) < kTypeNames.size()) {
    text = kTypeNames[static_cast<size_t>(device.type)];
  } else {
    text = "type" + std::to_string(device.type);
  }
  if (device.index != kCpu.index) text += ":" + std::to_string(device.index);
  return text;
}

Device parse_device(std::string_view text) {
  const size_t colon = text.find(':');
  const std::optional<int8_t> type = parse_type(text.substr(0, colon));
  std::optional<int8_t> index = -1;
  if (colon != std::string_view::npos) {
    index = parse_number(text.substr(colon + 1));
    if (index == -1) index.reset();  // written without an index
  }
  if (!type || !index) {
    throw UsageError("invalid device " + quote(text) + " (expected e.g. cpu or cuda:0)");
  }
  return {*type, *index};
}

}  // namespace tidegauge
