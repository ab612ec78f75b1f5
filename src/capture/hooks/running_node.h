// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/autograd/graph_task.h>

#include <cstdint>

#include "capture/hooks/at_every_op.h"
#include "capture/compat/thread_local.h"

namespace torch::autograd {
struct Node;
}

namespace tidegauge {

/// The autograd node that runs an op.
struct RunningNode {
  int task = -1;                   ///< of autograd; -1 outside of all backwards
  uint64_t gradient_trackers = 0;  ///< by position, that know the leaf of an AccumulateGrad
};

/// The node that this thread has told the trackers of last. It holds until trackers come or go, or
/// a backward ends (`BackwardEnd`): until then a thread that was in a backward still is.
struct ToldNode {
  uint64_t epoch = 0;  // at_every_op.node_epoch
  RunningNode running;
  const torch::autograd::Node* node = nullptr;  // compared, never followed
  uint64_t sequence = 0;

  static ToldNode& of_this_thread() { return ThreadLocal<ToldNode>::get(); }
  bool holds() const { return epoch == at_every_op.node_epoch.load(std::memory_order_relaxed); }
  static void end_all() { at_every_op.node_epoch.fetch_add(1, std::memory_order_relaxed); }
};

/// Kept by autograd for as long as a backward takes, which may fail. Copies do no harm.
struct BackwardEnd {
  BackwardEnd() = default;
  BackwardEnd(const BackwardEnd&) = default;
  BackwardEnd& operator=(const BackwardEnd&) = default;
  ~BackwardEnd() { ToldNode::end_all(); }
};

/// Asking autograd costs more than the rest of a free.
inline bool is_in_backward() {
  const ToldNode& told = ToldNode::of_this_thread();
  return (told.running.task != -1 && told.holds()) ||
         torch::autograd::get_current_graph_task_id() != -1;
}

}  // namespace tidegauge
