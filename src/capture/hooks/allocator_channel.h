// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace tidegauge {

/// Sees every allocation of the CPU allocator, also those that no tensor shows: workspace of
/// kernels, buffers of generated code and of collectives.
///
///     GetAllocator(kCPU) -> our layer -> the allocator that was current when the channel opened
///
/// While the channel is open, each allocation is reported at once to the listeners that count
/// allocations. It is Untracked until the StorageRegistry observes its storage.
///
/// The layer returns the DataPtr of the allocator below and replaces nothing but the deleter, as
/// CpuDeleter does: the context is still the memory itself, so copy-on-write, pickling and
/// raw_allocate find what they expect, and one table and one deleter serve both. raw_deleter() is
/// ours exactly while allocate() hands ours out. Our deleter gives memory without a record, which
/// raw_allocate made before the channel opened, to the raw_deleter() below.
///
/// A program may put another allocator on top of ours meanwhile. Then our layer stays below it for
/// good and, once closed, only passes calls on. Layers are never destroyed: storages keep a pointer
/// to the allocator that made them.
///
/// A storage resizes itself with the allocator that made it. An older storage gets our layer, for
/// good, when it is about to be written to or resized: `take_over`.
///
/// An allocator whose memory has a context of its own is passed through, and its allocations are
/// not reported. If threads allocate and free at once, the events have our order, not that of the
/// allocator below: a free is reported just before it happens, an allocation just after.
class AllocatorChannel {
 public:
  static AllocatorChannel& get();

  /// Counted: the last close restores the allocator below, at its priority. Like
  /// c10::SetAllocator, must not run while another thread sets an allocator.
  void open();
  void close(int count = 1);

  static void take_over(c10::StorageImpl* storage) noexcept {
    if (is_open_.load(std::memory_order_acquire)) get().exchange_allocator(storage);
  }

 private:
  class Layer;
  Layer* find_layer(const c10::Allocator* allocator) const;
  void exchange_allocator(c10::StorageImpl* storage) const noexcept;

  static inline constinit std::atomic<bool> is_open_{false};
  std::mutex mutex_;
  int open_count_ = 0;
  std::vector<Layer*> layers_;  // oldest first
  std::atomic<Layer*> counting_{nullptr};
};

}  // namespace tidegauge
