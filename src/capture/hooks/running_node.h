// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "capture/compat/at_every_op.h"
#include "core/events/ids.h"

namespace torch::autograd {
struct Node;
}

namespace tidegauge {

/// The autograd node whose backward calls the current op of this thread.
struct RunningNode {
  int task = -1;  ///< the graph task; -1: no backward runs in this thread
  /// Bit i: the node is an AccumulateGrad, and listener i of Listeners::all knows its leaf as a
  /// parameter.
  uint64_t gradient_listeners = 0;
};

/// Notifies the started listeners of the node that runs in this thread, or that none runs. A
/// repeated notification has no effect, so capture/fast may skip it.
RunningNode notify_running_node();
/// The same for a caller that has already read the graph task and the node (may be null).
RunningNode notify_running_node(int task, const torch::autograd::Node* node);

/// `notify_running_node`, or the fast path that capture/fast has set.
using ObserveNode = RunningNode (*)();
extern ObserveNode observe_running_node;

/// Call when an AccumulateGrad has used the storage. The lock of StorageRegistry must be held.
void notify_gradient(const RunningNode& running, StorageId storage);

/// Invalidates everything that is cached about running nodes.
inline void forget_running_nodes() {
  at_every_op.node_epoch.fetch_add(1, std::memory_order_relaxed);
}

/// Autograd keeps this object until a backward ends or fails. Copies do no harm.
struct BackwardEnd {
  BackwardEnd() = default;
  BackwardEnd(const BackwardEnd&) = default;
  BackwardEnd& operator=(const BackwardEnd&) = default;
  ~BackwardEnd() { forget_running_nodes(); }
};

}  // namespace tidegauge
