// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/running_node.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "capture/hooks/accumulated_leaf.h"
#include "capture/storages/storage_registry.h"

namespace tidegauge {
namespace {

using torch::autograd::Node;

constexpr size_t kMaxListeners = 64;  // bits in RunningNode::gradient_listeners

using KeptListeners = std::vector<std::shared_ptr<CaptureListener>>;

[[gnu::noinline, gnu::cold]] void keep(CaptureListener* listener, KeptListeners& kept) {
  if (auto alive = listener->keep_alive()) kept.push_back(std::move(alive));
}

/// Returns the bits of the listeners for which the leaf is a parameter that they did not know yet,
/// because it was used functionally or was replaced.
[[gnu::noinline, gnu::cold]] uint64_t learn_parameter(const at::Tensor& leaf,
                                                      const KeptListeners& unaware) {
  uint64_t aware = 0;
  for (const auto& listener : unaware) {
    if (!listener->learn_parameter(leaf)) continue;
    const auto lock = StorageRegistry::lock();
    const auto& all = StorageRegistry::get().listeners().all();
    const auto it = std::find(all.begin(), all.end(), listener.get());
    const auto position = static_cast<size_t>(it - all.begin());
    if (position < std::min(all.size(), kMaxListeners)) aware |= uint64_t{1} << position;
  }
  return aware;
}

void notify_left_backward() {
  const auto lock = StorageRegistry::lock();
  for (CaptureListener* listener : StorageRegistry::get().listeners().all()) {
    if (listener->is_started()) listener->thread_left_backward();
  }
}

RunningNode notify_node(int task, const Node& node) {
  const at::Tensor* leaf = accumulated_leaf(node);
  uint64_t aware = 0;
  KeptListeners unaware;
  {
    const auto lock = StorageRegistry::lock();
    const std::vector<CaptureListener*>& all = StorageRegistry::get().listeners().all();
    for (size_t i = 0; i < all.size(); ++i) {
      CaptureListener* listener = all[i];
      if (!listener->is_started()) continue;
      listener->node_runs(task, node);
      if (leaf == nullptr || i >= kMaxListeners) continue;
      if (listener->knows_parameter(*leaf)) {
        aware |= uint64_t{1} << i;
      } else {
        keep(listener, unaware);
      }
    }
  }
  if (!unaware.empty()) aware |= learn_parameter(*leaf, unaware);
  return {task, aware};
}

}  // namespace

constinit ObserveNode observe_running_node = &notify_running_node;

RunningNode notify_running_node(int task, const Node* node) {
  if (task == -1) {
    notify_left_backward();
    return {};
  }
  if (node == nullptr) return {task, 0};  // a tensor hook runs, or autograd sums gradients
  return notify_node(task, *node);
}

RunningNode notify_running_node() {
  const int task = torch::autograd::get_current_graph_task_id();
  const auto node = torch::autograd::get_current_node();
  return notify_running_node(task, node.get());
}

void notify_gradient(const RunningNode& running, StorageId storage) {
  const auto& all = StorageRegistry::get().listeners().all();
  for (size_t i = 0; i < std::min(all.size(), kMaxListeners); ++i) {
    if (((running.gradient_listeners >> i) & 1) != 0) all[i]->gradient_accumulated(storage);
  }
}

}  // namespace tidegauge
