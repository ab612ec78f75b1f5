// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/nn/module.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "capture/module_activity.h"
#include "tidegauge/mod_tracker.h"

namespace tidegauge {

/// What module scopes need of a C++ ModTracker. Thread-safe.
class ModTracker::Impl {
 public:
  Impl();

  /// The trackers that are entered now.
  static std::shared_ptr<const Impls> entered();

  /// Takes this tracker out of those that are entered.
  void stop() noexcept;

  void enter(const torch::nn::Module& module, const Tensors& inputs);
  void leave(const torch::nn::Module& module, const Tensors& inputs, const Tensors& outputs);

  UserHooks user_hooks() const;
  bool has_post_fw_hook() const { return static_cast<bool>(user_hooks().post_fw); }
  void set_user_hooks(UserHooks hooks);

  const std::shared_ptr<ModuleActivity> activity;
  std::atomic<int> entry_count{0};

 private:
  void name_module(const torch::nn::Module& module, ModuleId id);
  void name_children(const torch::nn::Module& module, ModuleId id);

  mutable std::mutex hooks_mutex_;
  UserHooks hooks_;
};

}  // namespace tidegauge
