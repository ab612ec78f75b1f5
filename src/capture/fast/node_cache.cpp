// SPDX-License-Identifier: BSD-3-Clause
#include "capture/fast/node_cache.h"

#include "capture/fast/sole.h"
#include "capture/hooks/accumulated_leaf.h"

namespace tidegauge::fast {
namespace {

constinit bool is_plugged = false;

/// `notify_running_node` for a sole listener. Returns false if the general path must do it:
/// several trackers listen, or the listener must ask the program about a leaf.
bool notify_sole(int task, const torch::autograd::Node& node, RunningNode& running) {
  const at::Tensor* leaf = accumulated_leaf(node);
  const auto lock = StorageRegistry::lock();
  if (sole.listener == nullptr) return false;
  sole.listener->node_runs(task, node);
  const bool is_parameter = leaf != nullptr && sole.listener->knows_parameter(*leaf);
  running = {task, is_parameter};
  return leaf == nullptr || is_parameter;
}

}  // namespace

RunningNode notify_and_cache(ObservedNode& last, const torch::autograd::Node* node) {
  const uint64_t epoch = at_every_op.node_epoch.load(std::memory_order_relaxed);
  const int task = torch::autograd::get_current_graph_task_id();
  RunningNode running;
  bool may_remember = is_plugged;
  if (task == -1 || node == nullptr || !notify_sole(task, *node, running)) [[unlikely]] {
    // Without a started listener autograd holds no BackwardEnd, so the epoch would not change when
    // the backward ends.
    may_remember &= StorageRegistry::get().listeners().any_started();
    running = notify_running_node(task, node);
    if (running.task != -1 && node == nullptr) return running;
  }
  last = {may_remember ? epoch : 0, running, node, node != nullptr ? node->sequence_nr() : 0};
  return running;
}

void plug_node_cache(bool is_enabled) {
  is_plugged = is_enabled;
  constexpr ObserveNode kGeneral = &notify_running_node;
  constexpr ObserveNode kCached = [] { return observe_node(); };
  observe_running_node = is_enabled ? kCached : kGeneral;
  forget_running_nodes();
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().set_is_in_backward(is_enabled ? &is_in_backward
                                                       : &StorageRegistry::is_in_graph_task);
}

}  // namespace tidegauge::fast
