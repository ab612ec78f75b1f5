// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "capture/modules/module_activity.h"
#include "core/events/ids.h"

namespace torch::autograd {
struct Node;
}

namespace tidegauge {

class TrackedEvents;

/// Where the running backwards are, one scope per graph task and thread.
///
/// Autograd runs the nodes of a thread in the reverse order of their creation. So the backward of a
/// module call begins with the first op of one of its nodes and ends with the first op of another
/// call's node, and no node needs a hook for it. Guarded by the lock of StorageRegistry.
class BackwardScopes {
 public:
  BackwardScopes(TrackedEvents& events, std::shared_ptr<ModuleActivity> modules)
      : events_(events), modules_(std::move(modules)) {}

  bool empty() const { return scopes_.empty(); }
  /// True if another thread runs a backward.
  bool any_elsewhere() const;

  /// A node of the task runs in this thread. False, with no effect, if the task has no scope here.
  bool move_to(int task, const torch::autograd::Node& node);
  void open(int task, const torch::autograd::Node& node);
  /// This thread has left all backwards.
  void close_in_thread();
  /// The task is over.
  void close(int task);

  /// The module died: its backward, if still to come, has no events.
  void forget_module(ModuleId module);

  /// A storage that is older than the tracker was found by an op of a backward.
  void add_found(StorageId storage) {
    if (!scopes_.empty()) found_.insert(storage);
  }
  bool has_found(StorageId storage) const { return !found_.empty() && found_.contains(storage); }

 private:
  struct Scope {
    int task;
    uint64_t thread;
    ModuleActivity::BackwardPlace place;
  };
  void move(Scope& scope, const torch::autograd::Node* node);

  TrackedEvents& events_;
  const std::shared_ptr<ModuleActivity> modules_;
  std::vector<Scope> scopes_;
  std::unordered_set<ModuleId> dead_;  // their backward may be still to come
  std::unordered_set<StorageId> found_;
  std::vector<ModuleMove> moves_;  // scratch of `move`
};

}  // namespace tidegauge
