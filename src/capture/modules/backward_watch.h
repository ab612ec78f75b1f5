// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/node.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/events/ids.h"
#include "core/modules/call_log.h"

namespace tidegauge {

/// One module call whose backward is reported to hooks. BackwardWatches guards it.
struct BackwardWatch {
  /// The state of the call in one backward (graph task).
  struct Run {
    int task = -1;
    size_t seen = 0;
    size_t expected = 0;
    std::vector<at::Tensor> grads;
    bool has_ended = false;
  };

  Run* find_run(int task);

  CallRef call;
  ModuleId module;
  uint64_t serial = 0;
  /// Keys into the graph task's tables; alive whenever the call's own nodes are.
  std::vector<torch::autograd::Node*> input_nodes;
  /// Keeps the gradient accumulators of leaf inputs until the graph holds them.
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> held_until_left;
  std::vector<Run> runs;
};

/// The watches that wait for one gradient, in the order of the forward.
struct WatchedGradient {
  struct Input {
    std::weak_ptr<BackwardWatch> watch;  // the outputs' nodes own the watch
    size_t slot;
  };

  std::vector<std::shared_ptr<BackwardWatch>> outputs;
  std::vector<Input> inputs;
};

/// Notified by our node hooks, which hold it weakly.
class GradientListener {
 public:
  /// A gradient arrived at a watched node, in the thread that runs the node.
  virtual void on_gradient(WatchedGradient& watched, const at::Tensor& grad) = 0;

 protected:
  ~GradientListener() = default;
};

/// Adds `watch` to the listener's hook on the gradient of `tensor`; creates the hook if missing.
void watch_output(const std::shared_ptr<GradientListener>& listener, const at::Tensor& tensor,
                  const std::shared_ptr<BackwardWatch>& watch);
void watch_input(const std::shared_ptr<GradientListener>& listener, const at::Tensor& tensor,
                 const std::shared_ptr<BackwardWatch>& watch);

/// Makes the nodes behind `tensor` hold the block, so that it lives as long as its graph.
void hold_block(const at::Tensor& tensor, const std::shared_ptr<CallBlock>& block);

/// How many of `nodes` the running backward will reach.
size_t count_reached(const std::vector<torch::autograd::Node*>& nodes);

}  // namespace tidegauge
