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

class NnModTracker;  // private to libtidegauge
using NnModTrackers = std::vector<std::shared_ptr<NnModTracker>>;

/// Knows which modules are running in the calling thread, by fully qualified name.
///
///     tidegauge::ModTracker tracker;
///     tracker.enter();
///     auto loss = tidegauge::call(model, x).sum();  // see module_scope.h
///     loss.backward();  // within it, parents() is {"Global", "Net", ...}
///     tracker.exit();
///
/// C++ modules have no hooks, so wrap a forward in ModuleScope, `call` or `Tracked`. Backward needs
/// no wrapper. Names are as in Python: the class of the first module called (without namespace and
/// `Impl`), then the path.
///
/// A module must be owned by a shared_ptr, as torch::nn's are, or outlive the tracker.
///
/// Thread-safe. Destroying an entered tracker exits it.
class TIDEGAUGE_API ModTracker {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `outputs` is empty if the forward threw; `module` is null if it no longer exists. For a module
  /// whose inputs need no gradient, `post_bw` runs at the end of the whole backward, without
  /// `grad_inputs`. An exception in a hook propagates to the training, unless another one is
  /// already propagating.
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
  /// Throws UsageError if not entered.
  void exit();

  /// "Global", then the modules running now in this thread, outermost first.
  std::vector<std::string> parents() const;
  /// True if a backward is running in this thread.
  bool is_bw() const;
  /// None if the module has no name in this tracker yet.
  std::optional<std::string> get_known_fqn(const torch::nn::Module& module) const;

  /// Sets the hooks that are not null. Throws UsageError, and sets none, if one of them is already
  /// set. Backward hooks run only for forward calls made after their registration.
  void register_user_hooks(UserHooks hooks);
  void clear_user_hooks();

  /// Number of exceptions in our own hooks, which the training never sees, and the message of the
  /// first one.
  int64_t failure_count() const;
  std::string first_failure() const;

 private:
  std::shared_ptr<NnModTracker> impl_;
};

}  // namespace tidegauge
