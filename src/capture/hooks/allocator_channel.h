// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace tidegauge {

/// Observes every allocation of the CPU allocator, including memory that no tensor uses: workspaces
/// of kernels, and buffers of generated code and of collectives.
///
///     GetAllocator(kCPU) -> our layer -> the allocator that was current when the channel opened
///
/// While the channel is open, each allocation is reported at once to the listeners that count
/// allocations. It is Untracked until the StorageRegistry observes its storage.
///
/// The layer returns the DataPtr of the allocator below and replaces only the deleter, as
/// CpuDeleter does. The context is still the memory itself, as copy-on-write, pickling and
/// raw_allocate expect. raw_deleter() returns our deleter exactly while allocate() uses it. Memory
/// that raw_allocate made before the channel opened has no record; our deleter passes it to the
/// raw_deleter() below.
///
/// A program may put another allocator on top of ours. Then our layer stays below it until the
/// process ends, and after `close` it only passes calls on. Layers are never destroyed, because a
/// storage keeps a pointer to its allocator.
///
/// A storage resizes itself with its allocator. A storage that is older than the layer gets the
/// layer as its allocator when it is about to be written to or resized: `take_over`.
///
/// The channel does not report allocations of an allocator whose memory has its own context. If
/// several threads allocate and free at the same time, the order of events may differ from the
/// order in the allocator: a free is reported just before it happens, an allocation just after.
class AllocatorChannel {
 public:
  static AllocatorChannel& get();

  /// Calls are counted: the last `close` restores the allocator below, at its priority. Like
  /// c10::SetAllocator, these must not run while another thread sets an allocator.
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
