// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tidegauge/export.h"

namespace torch::nn {
class Module;
}

namespace tidegauge {

/// Tells at any moment which modules are running in the calling thread, by fully qualified name.
///
///     tidegauge::ModTracker tracker;
///     tracker.enter();
///     auto loss = tidegauge::call(model, x).sum();  // see module_scope.h
///     loss.backward();                               // a hook that asks sees {"Global", "Net",
///     ...} tracker.exit();
///
/// C++ modules have no hooks: forward is seen where it is wrapped by a ModuleScope, `call` or
/// `Tracked`. Backward needs nothing more. Names are as in Python: the class of the first module
/// called (without namespace and `Impl`), then the path.
///
/// A module must be owned by a shared_ptr (as those of torch::nn are), or outlive the tracker.
///
/// Thread-safe. Destroying an entered tracker exits it.
class TIDEGAUGE_API ModTracker {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `outputs` is empty if the forward threw; `module` is null if it no longer exists; a module
  /// whose inputs need no gradient ends with the whole backward, with no `grad_inputs`. An
  /// exception of a hook goes on into the training, except where one is under way.
  struct UserHooks {
    using Module = torch::nn::Module;

    std::function<void(const Module& module, const Tensors& inputs)> pre_fw = nullptr;
    std::function<void(const Module& module, const Tensors& inputs, const Tensors& outputs)>
        post_fw = nullptr;
    std::function<void(const Module* module, const Tensors& grad_outputs)> pre_bw = nullptr;
    std::function<void(const Module* module, const Tensors& grad_inputs)> post_bw = nullptr;
  };

  ModTracker();
  ~ModTracker();
  ModTracker(const ModTracker&) = delete;
  ModTracker& operator=(const ModTracker&) = delete;

  /// Entries nest; only the outermost exit ends the tracking.
  void enter();
  /// UsageError if not entered.
  void exit();

  /// "Global", then the modules running now in this thread, outermost first.
  std::vector<std::string> parents() const;
  /// Whether a backward is running in this thread.
  bool is_bw() const;
  /// None if this tracker has not come across the module.
  std::optional<std::string> get_known_fqn(const torch::nn::Module& module) const;

  /// Fills the slots that are given. UsageError if one of them is taken; then none is changed.
  /// Backward hooks are told of the calls made after they were registered.
  void register_user_hooks(UserHooks hooks);
  void clear_user_hooks();

  /// Failures of our own hooks that were kept from the training, and the first one's text.
  int64_t failure_count() const;
  std::string first_failure() const;

  class Impl;  // private to libtidegauge
  using Impls = std::vector<std::shared_ptr<Impl>>;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace tidegauge
