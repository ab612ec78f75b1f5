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

struct FailedAllocation;
struct PostMortem;

/// Everything that capture reports. A tracker of memory is a listener (track/memory_tracker.h);
/// capture knows no other side of it.
///
/// Capture calls with the lock of StorageRegistry held, unless a function says otherwise. A
/// listener must not destroy tensors, take the GIL or call back into an op meanwhile.
class CaptureListener {
 public:
  /// Data instead of virtual functions, because every op reads it. A listener changes its state
  /// with the lock held and then calls Listeners::listener_changed.
  struct State {
    bool is_started = false;
    /// Counts memory from its allocation on (hooks/allocator_channel.h), not from its storage.
    bool counts_allocations = false;
    /// True if births and frees are only events to this listener: then capture/fast may skip
    /// ObservedStorage for them.
    bool needs_only_events = true;
    const void* fake_mode = nullptr;  ///< it was started in; compared, never followed
  };
  const State& state() const { return state_; }
  bool is_started() const { return state_.is_started; }

  /// An op made the storage, or it got its memory without an op (`op` is then none).
  virtual void storage_born(const ObservedStorage& observed, uint8_t birth_facts, OpId op) = 0;
  /// The same for a listener that needs only events.
  virtual void storage_born(StorageId id, int64_t size_bytes, Device device,
                            const c10::TensorImpl* tensor, uint8_t birth_facts, OpId op) = 0;
  /// An op used or returned a storage that it did not make.
  virtual void storage_found(const ObservedStorage& observed, uint8_t birth_facts, OpId op) = 0;
  /// `by_backward`: a backward freed it between its ops, so one of its nodes had saved it. Also
  /// called for a stopped listener.
  virtual void storage_freed(StorageId id, bool by_backward) = 0;
  /// `allocated`: the new memory, if the allocator has reported it before. Also called for a
  /// stopped listener.
  virtual void storage_resized(StorageId id, int64_t size_bytes, StorageId allocated) = 0;
  /// An allocator handed out memory. Only called for a started listener that counts allocations.
  virtual void memory_allocated(StorageId id, Device device, int64_t size_bytes) = 0;

  /// A node of the graph task `task` is about to run an op in this thread. May be called again for
  /// the same node. A listener must have autograd keep a BackwardEnd (hooks/running_node.h) until
  /// the task ends.
  virtual void node_runs(int task, const torch::autograd::Node& node) = 0;
  /// An op of this thread is about to run outside of every backward. May be called again.
  virtual void runs_outside_backward() = 0;
  /// True if the leaf's storage is labelled as a parameter.
  virtual bool knows_parameter(const at::Tensor& leaf) = 0;
  /// Asks the program whether the leaf is a parameter, and labels it if so. Called without the
  /// lock; may take the GIL.
  virtual bool learn_parameter(const at::Tensor& leaf) = 0;
  /// AccumulateGrad of a parameter has used the storage.
  virtual void gradient_accumulated(StorageId id) = 0;

  /// What a listener has made of a failed allocation.
  struct FailureReport {
    std::shared_ptr<const PostMortem> post_mortem;
    bool is_first = true;  ///< this listener has had no failure before
  };
  /// An allocation failed in this thread, within `op` if any.
  virtual FailureReport allocation_failed(const FailedAllocation& failed, OpId op,
                                          const std::string& message) = 0;

  /// Keeps the listener alive after the lock is released; null if its destruction has begun.
  virtual std::shared_ptr<CaptureListener> keep_alive() = 0;

 protected:
  ~CaptureListener() = default;
  State state_;
};

}  // namespace tidegauge
