// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "capture/storages/capture_listener.h"

namespace tidegauge {

/// The listeners of this process, started or not. Guarded by the lock of StorageRegistry.
///
/// Each registered storage stores the epoch in which every started listener knew it. The epoch
/// changes when a listener is added, removed, started or stopped. After that, the next op that uses
/// a storage reports it to all started listeners again. A listener ignores a storage that it knows.
class Listeners {
 public:
  /// Called when the epoch changes. capture/fast updates its caches then.
  using EpochObserver = void (*)(const Listeners& listeners);

  void add(CaptureListener* listener);
  void remove(CaptureListener* listener);
  /// Call when the state of a listener has changed.
  void listener_changed();

  const std::vector<CaptureListener*>& all() const { return all_; }
  /// May be called without the lock.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  uint64_t epoch() const { return epoch_; }
  /// May be called without the lock.
  bool any_started() const { return any_started_.load(std::memory_order_relaxed); }
  /// True if a listener was started in this FakeTensorMode.
  bool any_started_in(const void* mode) const;
  void set_epoch_observer(EpochObserver observer);

  /// Fake storages are only reported to listeners that were started in `fake_mode`.
  void notify_observed(const ObservedStorage& observed, bool was_there_before, uint8_t birth_facts,
                       OpId op, const void* fake_mode) const;
  void notify_freed(StorageId id, bool by_backward) const {
    for (CaptureListener* listener : all_) listener->storage_freed(id, by_backward);
  }
  void notify_resized(StorageId id, int64_t size_bytes, StorageId allocated = {}) const {
    for (CaptureListener* listener : all_) listener->storage_resized(id, size_bytes, allocated);
  }
  void notify_allocated(StorageId id, Device device, int64_t size_bytes) const;
  /// The memory was freed, and it is not known yet whether its storage is freed or resized.
  void notify_memory_gone(StorageId id) const;

 private:
  uint64_t epoch_ = 1;
  std::vector<CaptureListener*> all_;
  std::atomic<size_t> count_{0};
  std::atomic<bool> any_started_{false};
  EpochObserver epoch_observer_ = nullptr;
};

}  // namespace tidegauge
