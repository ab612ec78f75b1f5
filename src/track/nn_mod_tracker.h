// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/nn/module.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "capture/modules/module_activity.h"
#include "tidegauge/mod_tracker.h"

namespace torch::optim {
class Optimizer;
}

namespace tidegauge {

/// The implementation of ModTracker for torch::nn modules. The ModuleScopes of a C++ program notify
/// it. NnMemTracker, the implementation of MemTracker, derives from it. Thread-safe.
class NnModTracker {
 public:
  using Tensors = ModTracker::Tensors;
  using UserHooks = ModTracker::UserHooks;

  NnModTracker();
  virtual ~NnModTracker() = default;

  /// The trackers that are entered now.
  static std::shared_ptr<const NnModTrackers> entered();

  /// `start` adds this tracker to the entered trackers; `stop` removes it.
  void start(std::shared_ptr<NnModTracker> self);
  void stop() noexcept;

  /// Returns true if the call is within a backward. Pass the result on to `leave`.
  bool enter(const torch::nn::Module& module, ModuleId id, at::TensorList inputs);
  void leave(const torch::nn::Module& module, ModuleId id, bool is_bw, const Tensors& inputs,
             at::TensorList outputs);
  /// Gives a root module the name that the user chose.
  void rename_root(const torch::nn::Module& module, std::string_view name);
  virtual void begin_optimizer_step(const torch::optim::Optimizer&) {}
  virtual void end_optimizer_step(const torch::optim::Optimizer&) {}

  UserHooks user_hooks() const;
  bool has_post_fw_hook() const { return has_post_fw_.load(std::memory_order_relaxed); }
  void set_user_hooks(UserHooks hooks);

  const std::shared_ptr<ModuleActivity> activity;
  std::atomic<int> entry_count{0};

 protected:
  /// Called after a module was named and entered. An exception goes on to the program.
  virtual void on_enter(const torch::nn::Module&, ModuleId, const ModuleActivity::Entered&,
                        at::TensorList) {}
  /// Called once for each on_enter that did not throw, even if the tracker was exited meanwhile.
  virtual void on_leave(ModuleId, bool /*is_bw*/, at::TensorList) noexcept {}
  /// Called before unknown modules get names. Forget the modules that were destroyed.
  virtual void on_new_modules() {}

 private:
  mutable std::mutex hooks_mutex_;
  UserHooks hooks_;
  // Without hooks, a module call takes no lock and copies nothing.
  std::atomic<bool> has_pre_fw_{false};
  std::atomic<bool> has_post_fw_{false};
};

}  // namespace tidegauge
