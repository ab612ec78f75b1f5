// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidegauge/export.h"
#include "tidegauge/mem_category.h"
#include "tidegauge/module_state.h"

namespace tidegauge {

/// The bytes of one device by category.
struct DeviceMemory {
  c10::Device device;
  std::array<int64_t, kMemCategoryCount> bytes{};

  int64_t operator[](MemCategory category) const { return bytes[static_cast<size_t>(category)]; }
  int64_t total_bytes() const {
    int64_t sum = 0;
    for (const int64_t b : bytes) sum += b;
    return sum;
  }

  friend bool operator==(const DeviceMemory&, const DeviceMemory&) = default;
};

/// The bytes of all devices that have any, in the order in which they were first seen. In a peak
/// snapshot each device has its own moment, and its categories are those of that moment.
struct MemSnapshot {
  std::vector<DeviceMemory> devices;

  /// 0 for a device that has no bytes.
  int64_t bytes(c10::Device device, MemCategory category) const {
    const DeviceMemory* found = find(device);
    return found != nullptr ? (*found)[category] : 0;
  }
  int64_t total_bytes(c10::Device device) const {
    const DeviceMemory* found = find(device);
    return found != nullptr ? found->total_bytes() : 0;
  }
  const DeviceMemory* find(c10::Device device) const {
    for (const DeviceMemory& entry : devices) {
      if (entry.device == device) return &entry;
    }
    return nullptr;
  }

  friend bool operator==(const MemSnapshot&, const MemSnapshot&) = default;
};

using BytesByDevice = std::vector<std::pair<c10::Device, int64_t>>;

/// Memory statistics of one module: the bytes that it owns, takes as input and returns, and a
/// snapshot at each state of each call. A size is empty until it is known (`output_mem` until the
/// end of the first forward).
struct ModMemStats {
  std::string mod_fqn;
  std::optional<int64_t> parameter_mem;
  std::optional<int64_t> buffer_mem;
  std::optional<int64_t> input_mem;
  std::optional<int64_t> output_mem;
  /// The peak of the last backward, or of the last forward if there was no backward.
  BytesByDevice local_peak;
  /// The states in the order in which they first occurred; each has one snapshot per call.
  std::vector<std::pair<ModuleState, std::vector<MemSnapshot>>> snapshots;

  /// Null if the module was never in the state.
  const std::vector<MemSnapshot>* find(ModuleState state) const {
    for (const auto& [each, calls] : snapshots) {
      if (each == state) return &calls;
    }
    return nullptr;
  }
};

/// The same text as Python's MemTracker prints. `units`: "B", "KiB", "MiB" or "GiB"; throws
/// UsageError for any other.
TIDEGAUGE_API std::string render_snapshot(const MemSnapshot& snapshot,
                                          std::string_view units = "B");
/// The same for modules down to `depth` (1: only roots), sorted by name, with numbers in numeric
/// order.
TIDEGAUGE_API std::string render_modulewise_snapshots(std::vector<ModMemStats> modules,
                                                      int depth = 2, std::string_view units = "B");

}  // namespace tidegauge
