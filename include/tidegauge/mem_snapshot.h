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

/// A value: the bytes of all devices that have any, in the order in which they were first seen. In
/// a peak each device has its own moment, and its categories are those of that moment.
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

/// What is known of one module: the bytes that it has, takes and returns, and a snapshot at each
/// state of each call. Sizes in bytes; one that is not known yet is empty (`output_mem` before the
/// end of the first forward).
struct ModMemStats {
  std::string mod_fqn;
  std::optional<int64_t> parameter_mem;
  std::optional<int64_t> buffer_mem;
  std::optional<int64_t> input_mem;
  std::optional<int64_t> output_mem;
  /// The peak of the last backward; of the last forward if there was none.
  BytesByDevice local_peak;
  /// The states in the order in which they came to be, each with its snapshots in that of calls.
  std::vector<std::pair<ModuleState, std::vector<MemSnapshot>>> snapshots;

  /// Null if the module has not been in the state.
  const std::vector<MemSnapshot>* find(ModuleState state) const {
    for (const auto& [each, calls] : snapshots) {
      if (each == state) return &calls;
    }
    return nullptr;
  }
};

/// As Python's MemTracker prints it, to the letter. `units`: "B", "KiB", "MiB" or "GiB", otherwise
/// UsageError.
TIDEGAUGE_API std::string render_snapshot(const MemSnapshot& snapshot,
                                          std::string_view units = "B");
/// Likewise, modules down to `depth` (1: roots alone), sorted by name with numbers as numbers.
TIDEGAUGE_API std::string render_modulewise_snapshots(std::vector<ModMemStats> modules,
                                                      int depth = 2, std::string_view units = "B");

}  // namespace tidegauge
