// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/autograd/graph_task.h>

#include "capture/compat/autograd_node.h"
#include "capture/compat/thread_local.h"
#include "capture/hooks/running_node.h"
#include "capture/storages/storage_registry.h"

namespace tidegauge::fast {

/// Caches, per thread, the running node of the last notification. So the lock is taken once per
/// node instead of once per op. An entry is valid until `node_epoch` changes: when a listener is
/// added, removed, started or stopped, and when a backward ends.

struct ObservedNode {
  uint64_t epoch = 0;  // 0: nothing is cached
  RunningNode running;
  const torch::autograd::Node* node = nullptr;  // compared, never dereferenced
  uint64_t sequence = 0;

  static ObservedNode& of_this_thread() { return ThreadLocal<ObservedNode>::get(); }
  bool is_valid() const { return epoch == at_every_op.node_epoch.load(std::memory_order_relaxed); }
};

/// The uncommon case of `observe_node`: the cached entry is not valid. `node` may be null.
[[gnu::noinline]] RunningNode notify_and_cache(ObservedNode& last,
                                               const torch::autograd::Node* node);
/// The same result as `notify_running_node`; notifies only if the cached entry is not valid.
[[gnu::always_inline]] inline RunningNode observe_node() {
  ObservedNode& last = ObservedNode::of_this_thread();
  const bool is_valid = last.is_valid();
  if (is_valid && last.running.task == -1 && torch::autograd::get_current_graph_task_id() == -1) {
    return {};
  }
  const auto node = torch::autograd::get_current_node();
  if (is_valid && node && last.node == node.get() && last.sequence == node->sequence_nr()) {
    return last.running;
  }
  return notify_and_cache(last, node.get());
}
/// True if a backward runs in this thread.
inline bool is_in_backward() {
  const ObservedNode& last = ObservedNode::of_this_thread();
  return (last.running.task != -1 && last.is_valid()) || StorageRegistry::is_in_graph_task();
}

void plug_node_cache(bool is_enabled);

}  // namespace tidegauge::fast
