// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "capture/storages/observed_storage.h"

namespace torch::autograd {
struct Node;
}

namespace tidegauge {

class CaptureLog;
struct FailedAllocation;
struct PostMortem;

/// The notifications that capture sends. Memory trackers implement it (track/mem_engine.h);
/// capture knows trackers only as listeners.
///
/// Capture holds the lock of StorageRegistry during each call, unless the function says otherwise.
/// A listener must not destroy tensors, take the GIL or run an op while the lock is held.
class CaptureListener {
 public:
  /// Plain data instead of virtual functions, because every op reads it. A listener that changes
  /// its state must hold the lock and then call Listeners::listener_changed.
  struct State {
    bool is_started = false;
    /// Counts memory when it is allocated (hooks/allocator_channel.h), not when its storage is
    /// observed.
    bool counts_allocations = false;
    /// The log of a listener that only queues births and frees: capture/fast may append them to it
    /// instead of calling `storage_born` and `storage_freed`. Null for other listeners.
    CaptureLog* log = nullptr;
    /// The FakeTensorMode in which the listener was started. Compared, never dereferenced.
    const void* fake_mode = nullptr;
  };
  const State& state() const { return state_; }
  bool is_started() const { return state_.is_started; }

  /// An op made the storage, or the storage got its memory without an op (then `op` is none).
  virtual void storage_born(const ObservedStorage& observed, uint8_t birth_facts, OpId op) = 0;
  /// An op used or returned a storage that it did not make.
  virtual void storage_found(const ObservedStorage& observed, uint8_t birth_facts, OpId op) = 0;
  /// `by_backward`: a backward freed the storage between two ops, so a node had saved it. Also
  /// called for stopped listeners.
  virtual void storage_freed(StorageId id, bool by_backward) = 0;
  /// `allocated`: the id of the new memory if its allocation was already reported. Also called for
  /// stopped listeners.
  virtual void storage_resized(StorageId id, int64_t size_bytes, StorageId allocated) = 0;
  /// The listener's log has no room for the next birth or free of capture/fast.
  virtual void make_room() = 0;
  /// An allocator returned memory. Only called for started listeners that count allocations.
  virtual void memory_allocated(StorageId id, Device device, int64_t size_bytes) = 0;

  /// A node of the graph task `task` is about to run an op in this thread. May be called repeatedly
  /// for the same node. The listener must give autograd a BackwardEnd (hooks/running_node.h) to
  /// keep until the task ends.
  virtual void node_runs(int task, const torch::autograd::Node& node) = 0;
  /// An op of this thread is about to run outside of every backward. May be called repeatedly.
  virtual void thread_left_backward() = 0;
  /// True if the leaf's storage is labelled as a parameter.
  virtual bool knows_parameter(const at::Tensor& leaf) = 0;
  /// Asks the program whether the leaf is a parameter, and labels it if so. Called without the
  /// lock; may take the GIL.
  virtual bool learn_parameter(const at::Tensor& leaf) = 0;
  /// The AccumulateGrad node of a parameter has used the storage.
  virtual void gradient_accumulated(StorageId id) = 0;

  struct FailureReport {
    std::shared_ptr<const PostMortem> post_mortem;
    bool is_first = true;  ///< the first failed allocation of this listener
  };
  /// An allocation failed in this thread, in the op `op` or (none) outside of ops.
  virtual FailureReport allocation_failed(const FailedAllocation& failed, OpId op,
                                          const std::string& message) = 0;

  /// A reference that keeps the listener alive after the lock is released; null if the listener is
  /// being destroyed.
  virtual std::shared_ptr<CaptureListener> keep_alive() = 0;

 protected:
  ~CaptureListener() = default;
  State state_;
};

}  // namespace tidegauge
