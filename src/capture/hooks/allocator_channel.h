// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace tidegauge {

/// Sees all that the CPU allocator makes, also what no tensor shows: workspace of kernels, buffers
/// of generated code and of collectives.
///
///     GetAllocator(kCPU) -> our layer -> whichever allocator was current when we came
///
/// While it is open, each allocation is told to the trackers that want it, at once, and belongs to
/// nobody (Untracked) until StorageCapture comes across its storage.
///
/// The layer hands out the DataPtr of the allocator below with nothing but the deleter exchanged,
/// as StorageCapture does with storages that it comes across: the context is still the memory
/// itself, so copy-on-write, pickling and raw_allocate find what they expect, and one table and one
/// deleter serve both. raw_deleter() is ours exactly while allocate() hands ours out. Our deleter
/// gives memory that it does not know, which raw_allocate made before we came, to the raw_deleter()
/// below; memory that is given to that one after we left was allocated by it.
///
/// Somebody may put another allocator on top of ours meanwhile. Then ours stays below it for ever
/// and, once closed, only passes on. Layers are never destroyed: storages keep a pointer to the
/// allocator that made them.
///
/// A storage resizes itself with the allocator that it was made by. One from before is given ours,
/// for good, when it is about to be written to or resized: `take_over`.
///
/// An allocator whose memory has a context of its own is passed on, and what it makes is not told.
/// If threads allocate and free at once, the order of their events is ours, not that of the
/// allocator below: a free is told just before, an allocation just after it happens.
class AllocatorChannel {
 public:
  static AllocatorChannel& get();

  /// Counted: the last close restores the allocator below, at the priority that it had. Like
  /// c10::SetAllocator, not to be called while another thread sets an allocator.
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
  std::vector<Layer*> layers_;  // in the order of their making
  std::atomic<Layer*> counting_{nullptr};
};

}  // namespace tidegauge
