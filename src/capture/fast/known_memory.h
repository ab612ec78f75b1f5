// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "capture/storages/cpu_deleter.h"
#include "capture/storages/knowledge_cache.h"
#include "capture/storages/tensor_storages.h"

namespace tidegauge::fast {

/// Addresses of memory that every started listener knows. Most ops use only such memory and then
/// need no lock.
///
/// Lossy cache: false negatives, no false positives. The address of freed memory may remain, so
/// callers check for our deleter first, and an address is removed before new memory there gets our
/// deleter. Writers hold the lock of StorageRegistry. Readers need no lock: a thread gets memory
/// only after its address was added.
class KnownMemory final : public KnowledgeCache {
 public:
  bool contains(const void* data) const {
    return slots_[slot_of(data)].load(std::memory_order_relaxed) == bits(data);
  }
  void memory_known(const void* data) override { add(data); }
  void memory_renewed(const void* data) override {
    if (contains(data)) set(slot_of(data), kNothing);
  }
  void add(const void* data) { set(slot_of(data), bits(data)); }
  void clear() {
    for (size_t slot = 0; slot < slots_.size(); ++slot) set(slot, kNothing);
  }

 private:
  static constexpr int kBits = 9;
  static constexpr uintptr_t kNothing = 0;

  static uintptr_t bits(const void* data) { return reinterpret_cast<uintptr_t>(data); }
  // Fibonacci hashing, because addresses are aligned and often equally spaced.
  static size_t slot_of(const void* data) {
    return (bits(data) * 0x9E3779B97F4A7C15ull) >> (64 - kBits);
  }
  void set(size_t slot, uintptr_t value) { slots_[slot].store(value, std::memory_order_relaxed); }

  std::array<std::atomic<uintptr_t>, size_t{1} << kBits> slots_{};
};

/// Empty while this fast path is disabled.
extern KnownMemory known_memory;

/// True if every started listener knows the memory behind the tensor. Needs no lock.
inline bool is_known(const at::Tensor& tensor) {
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage == nullptr) return false;
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  return CpuDeleter::is_ours(data.get_deleter()) && known_memory.contains(data.get());
}

void plug_known_memory(bool is_enabled);

}  // namespace tidegauge::fast
