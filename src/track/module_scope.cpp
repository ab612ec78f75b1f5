// SPDX-License-Identifier: BSD-3-Clause
#include "tidegauge/module_scope.h"

#include "capture/modules/nn_module_registry.h"
#include "track/nn_mod_tracker.h"

namespace tidegauge {

ModuleScope::ModuleScope(const torch::nn::Module& module, at::TensorList inputs) : module_(module) {
  if (!is_anybody_watching()) return;
  trackers_ = NnModTracker::entered();
  id_ = NnModuleRegistry::get().intern(module).value;
  try {
    for (const auto& tracker : *trackers_) {
      is_bw_ = tracker->enter(module_, ModuleId(id_), inputs);
      ++entered_;
      if (tracker->has_post_fw_hook()) inputs_ = inputs.vec();
    }
  } catch (...) {
    leave_quietly();
    throw;
  }
}

ModuleScope::~ModuleScope() {
  if (entered_ > 0) leave_quietly();
}

void ModuleScope::finish(at::TensorList outputs) {
  while (entered_ > 0) {
    (*trackers_)[--entered_]->leave(module_, ModuleId(id_), is_bw_, inputs_, outputs);
  }
}

/// May run while an exception propagates, which an exception from a hook must not replace.
void ModuleScope::leave_quietly() noexcept {
  while (entered_ > 0) {
    try {
      finish({});
    } catch (...) {
      // The tracker whose hook threw has left the module. Continue with the others.
    }
  }
}

}  // namespace tidegauge
