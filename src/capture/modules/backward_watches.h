// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "capture/modules/backward_watch.h"
#include "core/events/ids.h"
#include "core/modules/call_log.h"
#include "core/util/spin_lock.h"

namespace tidegauge {

/// Hooks for the backward of each module call.
struct BackwardHooks {
  /// Called when the first gradient of an output of the call arrives.
  std::function<void(ModuleId, const at::Tensor& grad)> begin;
  /// Called when the gradients of all inputs that need one have arrived. `grads` is null if the
  /// backward ended before that.
  std::function<void(ModuleId, const std::vector<at::Tensor>* grads)> end;

  explicit operator bool() const { return begin || end; }
};

/// Runs the backward hooks of one tracker. For each watched call, node hooks observe the gradients
/// of its inputs and outputs.
///
/// Thread-safe. Backward hooks run without our lock, in the thread that runs the node, which may
/// not hold the GIL.
class BackwardWatches final : public GradientListener {
 public:
  /// Runs `body` as if `call` were running.
  using RunWithin = std::function<void(const CallRef& call, c10::function_ref<void()> body)>;

  explicit BackwardWatches(RunWithin run_within) : run_within_(std::move(run_within)) {}

  /// Call it once, before the first `add`. Node hooks and the engine hold `self` weakly.
  void set_self(std::weak_ptr<BackwardWatches> self) { self_ = std::move(self); }
  /// Takes effect for calls that begin from now on and for calls that are already watched.
  void set_hooks(BackwardHooks hooks);
  bool has_hooks() const { return has_hooks_.load(std::memory_order_relaxed); }

  std::shared_ptr<BackwardWatch> add(const CallRef& call);
  void add_input(const std::shared_ptr<BackwardWatch>& watch, const at::Tensor& input);
  void add_output(const std::shared_ptr<BackwardWatch>& watch, const at::Tensor& output);

  void on_gradient(WatchedGradient& watched, const at::Tensor& grad) override;

 private:
  void begin_backward(const std::shared_ptr<BackwardWatch>& watch, int task,
                      const at::Tensor& grad);
  void add_input_gradient(const std::shared_ptr<BackwardWatch>& watch, int task, size_t slot,
                          const at::Tensor& grad);
  void run_end_hook(const std::shared_ptr<BackwardWatch>& watch,
                    const std::vector<at::Tensor>* grads);
  void finish_task(int task);

  const RunWithin run_within_;
  std::weak_ptr<BackwardWatches> self_;
  std::atomic<bool> has_hooks_{false};

  SpinLock mutex_;  // guards the members below and all watches
  BackwardHooks hooks_;
  uint64_t last_serial_ = 0;
  std::map<int, std::vector<std::shared_ptr<BackwardWatch>>> running_;  // by graph task
};

}  // namespace tidegauge
