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

/// Follows the backwards that are running, with one scope per graph task and thread, and emits the
/// ModuleEnter and ModuleExit events of the modules that they pass.
///
/// Autograd runs the nodes of a thread in the reverse order of their creation. So the backward of a
/// module call begins with the first op of one of its nodes and ends with the first op of another
/// call's node. No node needs a hook. Guarded by the lock of StorageRegistry.
class BackwardScopes {
 public:
  BackwardScopes(TrackedEvents& events, std::shared_ptr<ModuleActivity> modules)
      : events_(events), modules_(std::move(modules)) {}

  bool empty() const { return scopes_.empty(); }
  /// True if another thread runs a backward.
  bool any_elsewhere() const;

  /// Call when a node of the task runs in this thread. Returns false, without effect, if the task
  /// has no scope in this thread; then call `open`.
  bool move_to(int task, const torch::autograd::Node& node);
  void open(int task, const torch::autograd::Node& node);
  /// Call when this thread has left all backwards.
  void close_in_thread();
  /// Call when the task has ended.
  void close(int task);

  /// Call when the module is destroyed. A later backward of the module emits no events.
  void forget_module(ModuleId module);

  /// Call when an op of a backward uses a storage that is older than the tracker.
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
  std::unordered_set<ModuleId> dead_;  // destroyed modules whose backward may not have run yet
  std::unordered_set<StorageId> found_;
  std::vector<ModuleMove> moves_;  // scratch space of `move`
};

}  // namespace tidegauge
