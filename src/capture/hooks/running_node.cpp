// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/running_node.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "capture/storages/storage_registry.h"

namespace tidegauge {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

constexpr size_t kMaxListeners = 64;  // that have a bit

using KeptListeners = std::vector<std::shared_ptr<CaptureListener>>;

[[gnu::noinline, gnu::cold]] void keep(CaptureListener* listener, KeptListeners& kept) {
  if (auto alive = listener->keep_alive()) kept.push_back(std::move(alive));
}

/// Bits of the listeners for which the leaf turns out to be a parameter that they had not seen:
/// used functionally, or replaced.
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

/// Null if the node is not an AccumulateGrad.
const AccumulateGrad* to_accumulator(const Node& node) {
  const bool is_one = node.sequence_nr() == UINT64_MAX && typeid(node) == typeid(AccumulateGrad);
  return is_one ? static_cast<const AccumulateGrad*>(&node) : nullptr;
}

void notify_outside() {
  const auto lock = StorageRegistry::lock();
  for (CaptureListener* listener : StorageRegistry::get().listeners().all()) {
    if (listener->is_started()) listener->runs_outside_backward();
  }
}

RunningNode notify_node(int task, const Node& node) {
  const AccumulateGrad* accumulator = to_accumulator(node);
  uint64_t aware = 0;
  KeptListeners unaware;
  {
    const auto lock = StorageRegistry::lock();
    const std::vector<CaptureListener*>& all = StorageRegistry::get().listeners().all();
    for (size_t i = 0; i < all.size(); ++i) {
      CaptureListener* listener = all[i];
      if (!listener->is_started()) continue;
      listener->node_runs(task, node);
      if (accumulator == nullptr || i >= kMaxListeners) continue;
      if (listener->knows_parameter(accumulator->variable)) {
        aware |= uint64_t{1} << i;
      } else {
        keep(listener, unaware);
      }
    }
  }
  if (!unaware.empty()) aware |= learn_parameter(accumulator->variable, unaware);
  return {task, aware};
}

}  // namespace

constinit ObserveNode observe_running_node = &notify_running_node;

RunningNode notify_running_node(int task, const Node* node) {
  if (task == -1) {
    notify_outside();
    return {};
  }
  if (node == nullptr) return {task, 0};  // a hook of a tensor, or a sum of gradients
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
