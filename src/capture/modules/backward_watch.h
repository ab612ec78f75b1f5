// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "capture/compat/autograd_node.h"
#include "core/events/ids.h"
#include "core/modules/call_log.h"

namespace tidegauge {

/// One module call whose backward calls hooks. Guarded by the lock of BackwardWatches.
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
  /// Keys into the tables of the graph task. These nodes live at least as long as the call's nodes.
  std::vector<torch::autograd::Node*> input_nodes;
  /// Keeps the gradient accumulators of leaf inputs alive until the graph holds them.
  std::vector<NodeRef> held_until_left;
  std::vector<Run> runs;
};

/// The watches that wait for one gradient, in the order of their forward calls.
struct WatchedGradient {
  struct Input {
    std::weak_ptr<BackwardWatch> watch;  // owned by the nodes of the outputs
    size_t slot;
  };

  std::vector<std::shared_ptr<BackwardWatch>> outputs;
  std::vector<Input> inputs;
};

/// Our node hooks notify it. They hold it weakly.
class GradientListener {
 public:
  /// Called when a gradient arrives at a watched node, in the thread that runs the node.
  virtual void on_gradient(WatchedGradient& watched, const at::Tensor& grad) = 0;

 protected:
  ~GradientListener() = default;
};

/// Adds `watch` to the listener's hook on the gradient of `tensor`. Creates the hook if there is
/// none.
void watch_output(const std::shared_ptr<GradientListener>& listener, const at::Tensor& tensor,
                  const std::shared_ptr<BackwardWatch>& watch);
void watch_input(const std::shared_ptr<GradientListener>& listener, const at::Tensor& tensor,
                 const std::shared_ptr<BackwardWatch>& watch);

/// Makes the node of `tensor` hold the block, so that the block lives as long as its graph.
void hold_block(const at::Tensor& tensor, const std::shared_ptr<CallBlock>& block);

/// How many of `nodes` the running backward will reach.
size_t count_reached(const std::vector<torch::autograd::Node*>& nodes);

}  // namespace tidegauge
