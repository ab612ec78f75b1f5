// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tidegauge {

/// Memory, by address, that all started trackers have been told of. Most ops come across such
/// memory only, and may then go on without a lock.
///
/// One slot for an address: it forgets some and never invents any. What is freed stays, for who
/// asks has seen our deleter on the memory; what gets that deleter anew is removed, or added,
/// first. Changed with the lock of StorageCapture held, asked without: whoever holds memory has
/// learnt of it after it was added.
class ToldMemory {
 public:
  bool contains(const void* data) const {
    return (slots_[slot_of(data)].load(std::memory_order_relaxed) & ~kIsParameter) == bits(data);
  }
  void add(const void* data) { set(slot_of(data), bits(data)); }
  void remove(const void* data) {
    if (contains(data)) set(slot_of(data), kNothing);
  }
  void clear() {
    for (size_t slot = 0; slot < slots_.size(); ++slot) set(slot, kNothing);
  }

  /// Given `contains`: whoever was told also knows it as a parameter, until it is added or removed.
  void mark_parameter(const void* data) { set(slot_of(data), bits(data) | kIsParameter); }
  bool is_parameter(const void* data) const {
    return slots_[slot_of(data)].load(std::memory_order_relaxed) == (bits(data) | kIsParameter);
  }

 private:
  static constexpr int kBits = 9;
  static constexpr uintptr_t kNothing = 0;
  static constexpr uintptr_t kIsParameter = 1;  // memory of the CPU allocator is aligned

  static uintptr_t bits(const void* data) { return reinterpret_cast<uintptr_t>(data); }
  // Fibonacci hashing: memory is aligned, and often of one size.
  static size_t slot_of(const void* data) {
    return (bits(data) * 0x9E3779B97F4A7C15ull) >> (64 - kBits);
  }
  void set(size_t slot, uintptr_t value) { slots_[slot].store(value, std::memory_order_relaxed); }

  std::array<std::atomic<uintptr_t>, size_t{1} << kBits> slots_{};
};

}  // namespace tidegauge
