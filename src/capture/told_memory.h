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
    return slots_[slot_of(data)].load(std::memory_order_relaxed) == data;
  }
  void add(const void* data) { slots_[slot_of(data)].store(data, std::memory_order_relaxed); }
  void remove(const void* data) {
    if (contains(data)) add_nothing(slot_of(data));
  }
  void clear() {
    for (size_t slot = 0; slot < slots_.size(); ++slot) add_nothing(slot);
  }

 private:
  static constexpr int kBits = 9;

  // Fibonacci hashing: memory is aligned, and often of one size.
  static size_t slot_of(const void* data) {
    return (reinterpret_cast<uintptr_t>(data) * 0x9E3779B97F4A7C15ull) >> (64 - kBits);
  }
  void add_nothing(size_t slot) { slots_[slot].store(nullptr, std::memory_order_relaxed); }

  std::array<std::atomic<const void*>, size_t{1} << kBits> slots_{};
};

}  // namespace tidegauge
