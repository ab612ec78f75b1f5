// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/backward_watch.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace tidegauge {
namespace {

using torch::autograd::FunctionPreHook;
using torch::autograd::variable_list;

/// Compiled autograd asks each hook to describe itself and refuses hooks that cannot. Our hooks
/// change no gradient, so they have nothing to describe.
struct ObservingHook : FunctionPreHook {
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
};

bool is_accumulator(const torch::autograd::Node& node) { return node.sequence_nr() == UINT64_MAX; }

/// Where our hooks go. Tensor hooks of an accumulator belong to the user's leaf and would outlive
/// the graph, so an accumulator gets node hooks.
std::vector<std::unique_ptr<FunctionPreHook>>& hooks_of(torch::autograd::Node& node) {
  return is_accumulator(node) ? node.pre_hooks() : node.tensor_pre_hooks();
}

/// Notifies the listener that a gradient arrived. There is one hook per node, input and listener,
/// so a tensor that is an input of many calls does not accumulate hooks.
struct GradientHook final : ObservingHook {
  GradientHook(std::weak_ptr<GradientListener> owner, uint32_t input)
      : listener(std::move(owner)), input_nr(input) {}

  variable_list operator()(const variable_list& grads) override {
    if (const auto alive = listener.lock()) alive->on_gradient(watched, grads.at(input_nr));
    return grads;
  }

  bool belongs_to(const std::shared_ptr<GradientListener>& other) const {
    return !listener.owner_before(other) && !other.owner_before(listener);
  }

  std::weak_ptr<GradientListener> listener;
  uint32_t input_nr;
  WatchedGradient watched;
};

struct BlockHolder final : ObservingHook {
  explicit BlockHolder(std::shared_ptr<CallBlock> held) : block(std::move(held)) {}
  variable_list operator()(const variable_list& grads) override { return grads; }

  std::shared_ptr<CallBlock> block;
};

WatchedGradient& find_watched(const std::shared_ptr<GradientListener>& listener,
                              const torch::autograd::Edge& edge) {
  auto& hooks = hooks_of(*edge.function);
  for (auto hook = hooks.rbegin(); hook != hooks.rend(); ++hook) {
    auto* ours = dynamic_cast<GradientHook*>(hook->get());
    if (ours != nullptr && ours->input_nr == edge.input_nr && ours->belongs_to(listener)) {
      return ours->watched;
    }
  }
  auto hook = std::make_unique<GradientHook>(listener, edge.input_nr);
  WatchedGradient& watched = hook->watched;
  hooks.push_back(std::move(hook));
  return watched;
}

}  // namespace

BackwardWatch::Run* BackwardWatch::find_run(int task) {
  const auto it =
      std::find_if(runs.begin(), runs.end(), [&](const Run& r) { return r.task == task; });
  return it == runs.end() ? nullptr : &*it;
}

void watch_output(const std::shared_ptr<GradientListener>& listener, const at::Tensor& tensor,
                  const std::shared_ptr<BackwardWatch>& watch) {
  find_watched(listener, torch::autograd::impl::gradient_edge(tensor)).outputs.push_back(watch);
}

void watch_input(const std::shared_ptr<GradientListener>& listener, const at::Tensor& tensor,
                 const std::shared_ptr<BackwardWatch>& watch) {
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(tensor);
  auto& inputs = find_watched(listener, edge).inputs;
  std::erase_if(inputs, [](const auto& input) { return input.watch.expired(); });
  inputs.push_back({watch, watch->input_nodes.size()});
  watch->input_nodes.push_back(edge.function.get());
  watch->held_until_left.push_back(edge.function);
}

void hold_block(const at::Tensor& tensor, const std::shared_ptr<CallBlock>& block) {
  const auto& node = tensor.grad_fn();
  if (!node) return;
  for (const auto& hook : node->tensor_pre_hooks()) {
    const auto* holder = dynamic_cast<const BlockHolder*>(hook.get());
    if (holder != nullptr && holder->block == block) return;
  }
  node->add_tensor_pre_hook(std::make_unique<BlockHolder>(block));
}

size_t count_reached(const std::vector<torch::autograd::Node*>& nodes) {
  const auto* info = torch::autograd::get_current_graph_task_exec_info();
  const auto* in_graph = torch::autograd::get_current_graph_task_nodes_in_graph();
  return static_cast<size_t>(std::count_if(nodes.begin(), nodes.end(), [&](auto* node) {
    if (info == nullptr || info->empty()) return in_graph != nullptr && in_graph->contains(node);
    const auto it = info->find(node);
    if (it == info->end()) return false;
    // If autograd.grad only returns a gradient, the hooks of its accumulator are not called.
    return is_accumulator(*node) ? it->second.needed_ : it->second.should_execute();
  }));
}

}  // namespace tidegauge
