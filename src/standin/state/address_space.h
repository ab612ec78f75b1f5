// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>

namespace tidegauge::standin {

/// Addresses of device memory: one large mapping without reserved memory, of which only pages that
/// are written to take real memory.
///
/// Addresses ascend and the lowest gap that fits is used, as drivers do. It matters: torch breaks
/// ties between free blocks by address, and readers of snapshots take ascending addresses for the
/// order in which segments were made.
///
/// Not thread-safe: DeviceMemory calls it under its lock.
class AddressSpace {
 public:
  /// `alignment`: a power of two. Returns null if no gap is large enough.
  void* take(size_t size_bytes, size_t alignment);
  /// Drops the contents. `begin` was returned by `take`.
  void give_back(void* begin);

 private:
  void map_all();

  std::map<uintptr_t, size_t> gaps_;
  std::unordered_map<uintptr_t, size_t> taken_;
  bool is_mapped_ = false;
};

}  // namespace tidegauge::standin
