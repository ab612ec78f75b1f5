// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/modules/call_log.h"
#include "core/events/ids.h"
#include "core/modules/module_tree.h"
#include "core/util/spin_lock.h"
#include "tidegauge/export.h"

namespace torch::autograd {
struct Node;
}

namespace tidegauge {

struct BackwardWatch;
struct WatchedGradient;

/// Somebody who wants to be told of the backward of each module call.
struct BackwardHooks {
  /// The first gradient of an output of the call arrived.
  std::function<void(ModuleId, const at::Tensor& grad)> begin;
  /// The gradients of all inputs that need one have arrived; null: the backward is over.
  std::function<void(ModuleId, const std::vector<at::Tensor>* grads)> end;

  explicit operator bool() const { return begin || end; }
};

/// What one tracker knows of modules: their names, and which are running in the calling thread.
///
/// Forward: the open calls of the thread. Backward: the calls that made the autograd node that is
/// being run, found by its sequence number (see CallLog), so concurrent backwards in several
/// threads are apart, nesting holds, and no node is hooked for it.
///
/// Only when somebody wants to be told of backward (`set_backward_hooks`) are hooks put on the
/// nodes of the inputs and outputs of each call; they hold this object weakly.
///
/// Thread-safe. Hooks run without our lock, on the thread that runs the node, perhaps without
/// the GIL.
class TIDEGAUGE_API ModuleActivity : public std::enable_shared_from_this<ModuleActivity> {
 public:
  /// The module that owns a parameter, none if unknown. May take the GIL.
  using FindOwner = std::function<ModuleId(const at::Tensor&)>;

  static std::shared_ptr<ModuleActivity> create(FindOwner find_owner);
  ~ModuleActivity();

  // Names; see ModuleTree.
  std::string name(ModuleId module) const;
  bool knows(ModuleId module) const;
  void name_root(ModuleId module, std::string_view class_name);
  void rename_root(ModuleId module, std::string_view name);
  void name_child(ModuleId child, ModuleId parent, std::string_view attribute);
  void mark_dead(ModuleId module);

  /// Takes effect for calls entered from now on, and for calls already hooked.
  void set_backward_hooks(BackwardHooks hooks);
  bool has_backward_hooks() const { return is_watching_.load(std::memory_order_relaxed); }

  struct Entered {
    bool is_named = false;      ///< if not, nothing was entered: give it a name first
    bool was_open = false;      ///< in this thread already: it calls itself
    bool is_root_call = false;  ///< the outermost call of this thread, of a module below no other
    bool is_bw = false;         ///< within a backward: something is computed again
  };
  /// `inputs` are looked at only when `has_backward_hooks` says so.
  Entered enter(ModuleId module, at::TensorList inputs);
  /// Whether a module about to be left is open in this thread, and `leave` wants its outputs.
  struct Open {
    bool is_open = false;
    bool wants_outputs = false;
  };
  Open before_leave(ModuleId module);
  /// False if the module is not open in this thread. `outputs` are looked at only when
  /// `before_leave` would want them.
  bool leave(ModuleId module, at::TensorList outputs);

  /// A checkpoint runs its forward again. `keeps_graph`: the nodes made in it will be run
  /// (reentrant); otherwise they are thrown away.
  void begin_recompute(bool keeps_graph);
  void end_recompute();

  /// Forgets all open calls (the tracker was exited). Graphs stay known.
  void stop();

  /// Modules running now in this thread, outermost first, each once.
  std::vector<ModuleId> active();
  /// Where a backward is: the call that made the node that runs.
  struct BackwardPlace {
    CallRef call;
    uint64_t maker = 0;   ///< the thread that made the node
    SequenceRange range;  ///< numbers of nodes of that thread that the same call made
    size_t hint = 0;      ///< where the call was found; see CallBlock::call_of
  };
  /// Goes on to `node` (null: out of the backward; not a gradient accumulator), and appends what is
  /// left and entered on the way; see append_move. The way leads through the calls that have made
  /// no node, but handed on what this one has made.
  void move(BackwardPlace& place, const torch::autograd::Node* node,
            std::vector<ModuleMove>& moves);

  /// Runs `body` as if the newest call of `module` were what is running.
  void run_within(ModuleId module, const std::function<void()>& body);

  /// Failures of our own hooks that were kept from the training.
  int64_t failure_count() const;
  std::string first_failure() const;

  /// A gradient arrived at a watched node; called by our node hooks.
  void on_gradient(WatchedGradient& watched, const at::Tensor& grad);

 private:
  struct ThreadState;
  struct LastState;
  class WithinCall;
  friend struct ThreadStates;

  explicit ModuleActivity(FindOwner find_owner);
  ThreadState& this_thread();
  ThreadState& find_this_thread();
  CallRef find_node_call(const torch::autograd::Node& node);
  /// With the lock held; see CallLog::find.
  CallRef find_made(const torch::autograd::Node& node, SequenceRange* range);
  std::vector<ModuleId> current_node_chain();
  [[gnu::noinline, gnu::cold]] void open_block(ThreadState& thread, int task, uint64_t sequence,
                                               const std::vector<ModuleId>& base);
  bool leave_watched(ModuleId module, at::TensorList outputs);
  std::shared_ptr<BackwardWatch> watch_inputs(const CallRef& call, at::TensorList inputs);
  void begin_backward(const std::shared_ptr<BackwardWatch>& watch, int task,
                      const at::Tensor& grad);
  void add_input_gradient(const std::shared_ptr<BackwardWatch>& watch, int task, size_t slot,
                          const at::Tensor& grad);
  void fire_end(const std::shared_ptr<BackwardWatch>& watch, const std::vector<at::Tensor>* grads);
  void finish_task(int task);
  void end_thread(uint64_t thread);
  void sweep_dead_modules();
  void note_failure(const char* where, const char* what);

  const FindOwner find_owner_;
  const uint64_t serial_;
  std::atomic<bool> is_watching_{false};

  mutable SpinLock mutex_;  // guards all below
  ModuleTree names_;
  size_t sweep_at_ = 64;
  std::unordered_map<uint64_t, std::unique_ptr<ThreadState>> threads_;  // by torch's thread id
  BackwardHooks hooks_;
  uint64_t next_watch_ = 0;
  std::map<int, std::vector<std::shared_ptr<BackwardWatch>>> running_;  // by graph task
  int64_t failure_count_ = 0;
  std::string first_failure_;
};

}  // namespace tidegauge
