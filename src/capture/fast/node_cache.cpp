// SPDX-License-Identifier: BSD-3-Clause
#include "capture/fast/node_cache.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include "capture/compat/thread_local.h"
#include "capture/storages/storage_registry.h"

namespace tidegauge::fast {
namespace {

constinit bool is_plugged = false;

uint64_t node_epoch() { return at_every_op.node_epoch.load(std::memory_order_relaxed); }

struct ObservedNode {
  uint64_t epoch = 0;  // 0: nothing is remembered
  RunningNode running;
  const torch::autograd::Node* node = nullptr;  // compared, never followed
  uint64_t sequence = 0;

  static ObservedNode& of_this_thread() { return ThreadLocal<ObservedNode>::get(); }
  bool holds() const { return epoch == node_epoch(); }
};

[[gnu::noinline]] RunningNode notify(ObservedNode& last, const torch::autograd::Node* node) {
  const uint64_t epoch = node_epoch();
  // Only a started listener lets autograd keep a BackwardEnd, which changes the epoch.
  const bool may_remember = is_plugged && StorageRegistry::get().listeners().any_started();
  const int task = torch::autograd::get_current_graph_task_id();
  const RunningNode running = notify_running_node(task, node);
  if (running.task != -1 && node == nullptr) return running;
  last = {may_remember ? epoch : 0, running, node, node != nullptr ? node->sequence_nr() : 0};
  return running;
}

}  // namespace

RunningNode observe_node() {
  ObservedNode& last = ObservedNode::of_this_thread();
  const bool holds = last.holds();
  if (holds && last.running.task == -1 && torch::autograd::get_current_graph_task_id() == -1) {
    return {};
  }
  const auto node = torch::autograd::get_current_node();
  if (holds && node && last.node == node.get() && last.sequence == node->sequence_nr()) {
    return last.running;
  }
  return notify(last, node.get());
}

bool is_in_backward() {
  const ObservedNode& last = ObservedNode::of_this_thread();
  return (last.running.task != -1 && last.holds()) || StorageRegistry::ask_autograd();
}

void plug_node_cache(bool is_enabled) {
  is_plugged = is_enabled;
  constexpr ObserveNode kGeneral = &notify_running_node;
  observe_running_node = is_enabled ? &observe_node : kGeneral;
  forget_running_nodes();
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().set_is_in_backward(is_enabled ? &is_in_backward
                                                       : &StorageRegistry::ask_autograd);
}

}  // namespace tidegauge::fast
