// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "standin/state/address_space.h"

namespace tidegauge::standin {

/// The memory of all devices: who has how much of it, and which addresses belong to which device.
///
/// Memory and addresses are separate, as in the driver: cudaMalloc takes both, expandable segments
/// reserve addresses (`reserve`) and memory (`take`) independently.
///
/// A device refuses what exceeds its memory less the context, so a program that would run out of
/// memory does. The runtime takes memory from the driver in pages of 2 MiB; requests below 1 MiB
/// share pages and count with their own size.
///
/// Thread-safe.
class DeviceMemory {
 public:
  struct Range {
    uintptr_t begin;
    size_t size_bytes;
    int device;  // kHost: pinned memory of the host
  };
  static constexpr int kHost = -1;
  static constexpr size_t kPage = size_t{2} << 20;

  static DeviceMemory& instance();

  /// Memory with addresses; null if the device has too little.
  void* allocate(size_t size_bytes, int device);
  /// Memory of the host, for cudaHostAlloc. It is really there, also after a fork.
  void* allocate_pinned(size_t size_bytes);
  /// False if `begin` is not the beginning of a range.
  bool release(void* begin);

  /// Addresses without memory.
  void* reserve(size_t size_bytes, int device);
  /// Memory without addresses. False if the device has too little.
  bool take(size_t size_bytes, int device);
  void give_back(size_t size_bytes, int device);

  std::optional<Range> find(const void* address) const;
  bool is_on_device(const void* address) const;
  size_t free_bytes(int device);
  /// The first use of a device takes the memory of its context.
  void make_context(int device);
  bool has_context(int device) const;

 private:
  struct Device {
    size_t used_bytes = 0;
    bool has_context = false;
  };
  struct Entry {
    size_t size_bytes;
    size_t counted_bytes;
    int device;
  };
  DeviceMemory();
  bool take_locked(size_t size_bytes, int device);
  void make_context_locked(int device);
  std::map<uintptr_t, Entry>::const_iterator find_locked(const void* address) const;

  mutable std::mutex mutex_;
  AddressSpace addresses_;
  std::map<uintptr_t, Entry> ranges_;
  std::vector<Device> devices_;
};

}  // namespace tidegauge::standin
