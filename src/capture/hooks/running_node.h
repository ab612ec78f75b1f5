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
  int task = -1;  ///< the graph task; -1 outside of every backward
  /// Bits by position in Listeners::all: those that know the leaf of this AccumulateGrad.
  uint64_t gradient_listeners = 0;
};

/// Notifies the started listeners of the node that runs in this thread, or that none runs. A
/// repeated notification changes nothing, so capture/fast may skip it.
RunningNode notify_running_node();
/// The same with what autograd says: the graph task, and the node or null.
RunningNode notify_running_node(int task, const torch::autograd::Node* node);

/// `notify_running_node`, or the shorter way that capture/fast has set.
using ObserveNode = RunningNode (*)();
extern ObserveNode observe_running_node;

/// AccumulateGrad has used the storage. With the lock of StorageRegistry held.
void notify_gradient(const RunningNode& running, StorageId storage);

/// Nothing that was found out about running nodes holds any more.
inline void forget_running_nodes() {
  at_every_op.node_epoch.fetch_add(1, std::memory_order_relaxed);
}

/// Autograd keeps it as long as a backward lasts, also one that fails. Copies do no harm.
struct BackwardEnd {
  BackwardEnd() = default;
  BackwardEnd(const BackwardEnd&) = default;
  BackwardEnd& operator=(const BackwardEnd&) = default;
  ~BackwardEnd() { forget_running_nodes(); }
};

}  // namespace tidegauge
