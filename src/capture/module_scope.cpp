// SPDX-License-Identifier: BSD-3-Clause
#include "tidegauge/module_scope.h"

#include <utility>

#include "capture/mod_tracker_impl.h"
#include "capture/nn_module_registry.h"

namespace tidegauge {

class ModuleScope::Impl {
 public:
  Impl(const torch::nn::Module& module, std::vector<at::Tensor> inputs,
       std::shared_ptr<const ModTracker::Impls> trackers)
      : module_(module),
        id_(NnModuleRegistry::get().intern(module)),
        inputs_(std::move(inputs)),
        trackers_(std::move(trackers)) {
    try {
      bool is_shown_again = false;
      for (; entered_ < trackers_->size(); ++entered_) {
        (*trackers_)[entered_]->enter(module_, id_, inputs_);
        is_shown_again |= (*trackers_)[entered_]->has_post_fw_hook();
      }
      if (!is_shown_again) inputs_.clear();  // or they would live longer than without us
    } catch (...) {
      leave_quietly();
      throw;
    }
  }

  void leave(const std::vector<at::Tensor>& outputs) {
    while (entered_ > 0) (*trackers_)[--entered_]->leave(module_, id_, inputs_, outputs);
  }

  /// An exception is under way: one of a hook must not join it.
  void leave_quietly() {
    while (entered_ > 0) {
      try {
        leave({});
      } catch (...) {
        // The tracker it came from has left; go on with the others.
      }
    }
  }

 private:
  const torch::nn::Module& module_;
  const ModuleId id_;
  std::vector<at::Tensor> inputs_;
  const std::shared_ptr<const ModTracker::Impls> trackers_;
  size_t entered_ = 0;
};

bool ModuleScope::is_anybody_watching() { return ModTracker::Impl::is_any_entered(); }

ModuleScope::ModuleScope(const torch::nn::Module& module, std::vector<at::Tensor> inputs) {
  if (!is_anybody_watching()) return;
  auto trackers = ModTracker::Impl::entered();
  if (trackers->empty()) return;
  impl_ = std::make_unique<Impl>(module, std::move(inputs), std::move(trackers));
}

ModuleScope::~ModuleScope() {
  if (impl_) impl_->leave_quietly();
}

void ModuleScope::finish(const std::vector<at::Tensor>& outputs) {
  if (impl_) impl_->leave(outputs);
}

}  // namespace tidegauge
