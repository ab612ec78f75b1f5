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

/// What the scopes of a C++ program need of a tracker: a ModTracker, or a MemTracker, which is one
/// that also looks at memory. Thread-safe.
class ModTracker::Impl {
 public:
  Impl();
  virtual ~Impl() = default;

  /// The trackers that are entered now.
  static std::shared_ptr<const Impls> entered();

  /// Puts this tracker among those that are entered, and takes it out again.
  void start(std::shared_ptr<Impl> self);
  void stop() noexcept;

  /// Whether the call is within a backward, which `leave` wants to hear.
  bool enter(const torch::nn::Module& module, ModuleId id, at::TensorList inputs);
  void leave(const torch::nn::Module& module, ModuleId id, bool is_bw, const Tensors& inputs,
             at::TensorList outputs);
  /// The program's own name for a root module.
  void rename_root(const torch::nn::Module& module, std::string_view name);
  virtual void begin_optimizer_step() {}
  virtual void end_optimizer_step(const torch::optim::Optimizer&) {}

  UserHooks user_hooks() const;
  bool has_post_fw_hook() const { return has_post_fw_.load(std::memory_order_relaxed); }
  void set_user_hooks(UserHooks hooks);

  const std::shared_ptr<ModuleActivity> activity;
  std::atomic<int> entry_count{0};

 protected:
  /// A module has its name and is entered. What this throws goes on into the training.
  virtual void on_enter(const torch::nn::Module&, ModuleId, const ModuleActivity::Entered&,
                        at::TensorList) {}
  /// Follows each on_enter that did not throw, also if the tracker was exited meanwhile.
  virtual void on_leave(ModuleId, bool /*is_bw*/, at::TensorList) noexcept {}
  /// Modules that were not known are about to be: a moment to forget the dead.
  virtual void on_new_modules() {}

 private:
  void name_module(const torch::nn::Module& module, ModuleId id);
  void name_children(const torch::nn::Module& module, ModuleId id);

  mutable std::mutex hooks_mutex_;
  UserHooks hooks_;
  // So that nearly all calls need neither the lock nor a copy of the hooks.
  std::atomic<bool> has_pre_fw_{false};
  std::atomic<bool> has_post_fw_{false};
};

}  // namespace tidegauge
