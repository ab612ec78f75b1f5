// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/modules/backward_watches.h"
#include "core/events/ids.h"
#include "core/modules/call_log.h"
#include "core/modules/module_tree.h"
#include "core/util/failures.h"
#include "core/util/spin_lock.h"
#include "tidegauge/export.h"

namespace torch::autograd {
struct Node;
}

namespace tidegauge {

/// The modules of one tracker: their names, and which of them run in the calling thread.
///
/// In forward, these are the open calls of the thread. In backward, they are the calls that made
/// the running autograd node, which CallLog finds by the node's sequence number. So several threads
/// can run backwards at the same time, calls nest as in forward, and no node needs a hook.
///
/// Only `set_backward_hooks` adds hooks to nodes: to those of the inputs and outputs of each call.
/// The hooks hold this object weakly.
///
/// Thread-safe. BackwardWatches says in which thread backward hooks run.
class TIDEGAUGE_API ModuleActivity : public std::enable_shared_from_this<ModuleActivity> {
 public:
  /// Returns the module that owns a parameter; none if no module is known to. May take the GIL.
  using FindOwner = std::function<ModuleId(const at::Tensor&)>;

  static std::shared_ptr<ModuleActivity> create(FindOwner find_owner);
  ~ModuleActivity();

  // Names; see ModuleTree.
  std::string name(ModuleId module) const;
  std::string short_name(ModuleId module) const;
  bool knows(ModuleId module) const;
  void name_root(ModuleId module, std::string_view class_name);
  void rename_root(ModuleId module, std::string_view name);
  void name_child(ModuleId child, ModuleId parent, std::string_view attribute);
  void mark_dead(ModuleId module);

  /// See BackwardWatches::set_hooks.
  void set_backward_hooks(BackwardHooks hooks);
  bool has_backward_hooks() const { return backward_.has_hooks(); }

  struct Entered {
    bool is_named = false;      ///< false: `enter` had no effect; name the module first
    bool was_open = false;      ///< the module was already open in this thread: it calls itself
    bool is_root_call = false;  ///< the call is the outermost of this thread and of a root module
    bool is_bw = false;         ///< the call is within a backward: a recompute
  };
  /// Reads `inputs` only if `has_backward_hooks`.
  Entered enter(ModuleId module, at::TensorList inputs);
  struct Open {
    bool is_open = false;        ///< the module is open in this thread
    bool wants_outputs = false;  ///< `leave` needs the outputs
  };
  Open find_open_call(ModuleId module);
  /// Returns false if the module is not open in this thread. Reads `outputs` only if
  /// `find_open_call` has returned `wants_outputs`.
  bool leave(ModuleId module, at::TensorList outputs);

  /// Call around a recompute: a checkpoint runs its forward again. `keeps_graph`: autograd will run
  /// the nodes of the recompute (a reentrant checkpoint) instead of discarding them.
  void begin_recompute(bool keeps_graph);
  void end_recompute();

  /// Closes all calls, when the tracker is exited. Lookups still find the calls that made autograd
  /// nodes.
  void stop();

  /// The modules that are running in this thread, outermost first, each once.
  std::vector<ModuleId> active();
  /// The innermost `count` calls among them, innermost last.
  std::vector<ModuleId> last_active(size_t count);
  /// The position of a backward: the call that made the running node.
  struct BackwardPlace {
    CallRef call;
    uint64_t maker = 0;   ///< the thread that made the node
    SequenceRange range;  ///< sequence numbers of nodes of that thread that the same call made
    size_t hint = 0;      ///< see CallBlock::call_of
  };
  /// Moves to `node`, or out of the backward if it is null. `node` must not be a gradient
  /// accumulator. Appends the calls that are left and entered (see append_move), including calls
  /// that made no node and returned the output of this one.
  void move(BackwardPlace& place, const torch::autograd::Node* node,
            std::vector<ModuleMove>& moves);

  /// Runs `body` as if the latest call of `module` were running.
  void run_within(ModuleId module, const std::function<void()>& body);

  /// Failures in our own hooks. Training does not see them.
  Failures& failures() { return failures_; }

 private:
  struct ThreadState;
  struct LastState;
  class WithinCall;
  friend struct ThreadStates;

  explicit ModuleActivity(FindOwner find_owner);
  ThreadState& this_thread();
  ThreadState& make_thread_state();
  CallRef find_node_call(const torch::autograd::Node& node);
  /// Calls CallLog::find. The lock must be held.
  CallRef find_made(const torch::autograd::Node& node, SequenceRange* range);
  std::vector<ModuleId> current_node_chain();
  std::vector<ModuleId> running_calls();
  [[gnu::noinline, gnu::cold]] void open_block(ThreadState& thread, int task, uint64_t sequence,
                                               const std::vector<ModuleId>& base);
  bool leave_watched(ModuleId module, at::TensorList outputs);
  std::shared_ptr<BackwardWatch> watch_inputs(const CallRef& call, at::TensorList inputs);
  void end_thread(uint64_t thread);
  void sweep_dead_modules();

  Failures failures_;
  const FindOwner find_owner_;
  const uint64_t serial_;
  BackwardWatches backward_;

  mutable SpinLock mutex_;  // guards the members below
  ModuleTree names_;
  size_t sweep_at_ = 64;
  std::unordered_map<uint64_t, std::unique_ptr<ThreadState>> threads_;  // by torch_thread::id
};

}  // namespace tidegauge
