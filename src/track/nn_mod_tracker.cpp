// SPDX-License-Identifier: BSD-3-Clause
#include "track/nn_mod_tracker.h"

#include <utility>

#include "capture/modules/module_call.h"
#include "capture/modules/module_naming.h"
#include "capture/modules/nn_module_registry.h"
#include "capture/modules/nn_module_view.h"
#include "tidegauge/module_scope.h"
#include "track/entered_trackers.h"

namespace tidegauge {

constinit std::atomic<bool> detail::is_any_entered{false};

namespace {

EnteredTrackers<NnModTracker>& entered_trackers() {
  static auto* entered = new EnteredTrackers<NnModTracker>(&detail::is_any_entered);
  return *entered;
}

}  // namespace

std::shared_ptr<const NnModTrackers> NnModTracker::entered() { return entered_trackers().all(); }

NnModTracker::NnModTracker()
    : activity(ModuleActivity::create([](const at::Tensor& parameter) {
        return NnModuleRegistry::get().find_owner(parameter);
      })) {}

void NnModTracker::start(std::shared_ptr<NnModTracker> self) {
  entered_trackers().add(std::move(self));
}

void NnModTracker::stop() noexcept {
  entered_trackers().remove(*this);
  activity->stop();
}

bool NnModTracker::enter(const torch::nn::Module& module, ModuleId id, at::TensorList inputs) {
  const ModuleActivity::Entered entered = begin_module_call(
      *activity, id, inputs,
      [&] {
        for (const ModuleId dead : NnModuleRegistry::get().collect_dead()) {
          activity->mark_dead(dead);
        }
        on_new_modules();
        name_called(*activity, nn_modules(), NnModuleView(module), id);
      },
      [&](const ModuleActivity::Entered& call) { on_enter(module, id, call, inputs); },
      [&](const ModuleActivity::Entered& call) { on_leave(id, call.is_bw, {}); },
      [&] {
        if (!has_pre_fw_.load(std::memory_order_relaxed)) return;
        if (const auto hook = user_hooks().pre_fw) hook(module, inputs.vec());
      });
  return entered.is_bw;
}

void NnModTracker::leave(const torch::nn::Module& module, ModuleId id, bool is_bw,
                         const Tensors& inputs, at::TensorList outputs) {
  end_module_call(
      *activity, id, outputs, [&] { on_leave(id, is_bw, outputs); },
      [&] {
        if (!has_post_fw_hook() || !activity->find_open_call(id).is_open) return;
        if (const auto hook = user_hooks().post_fw) hook(module, inputs, outputs.vec());
      });
}

void NnModTracker::rename_root(const torch::nn::Module& module, std::string_view name) {
  const NnModuleView view(module);
  const ModuleId id = view.intern();
  activity->rename_root(id, name);
  name_children(*activity, view, id);
}

NnModTracker::UserHooks NnModTracker::user_hooks() const {
  const std::lock_guard lock(hooks_mutex_);
  return hooks_;
}

void NnModTracker::set_user_hooks(UserHooks hooks) {
  BackwardHooks backward;
  if (hooks.pre_bw) {
    backward.begin = [hook = hooks.pre_bw](ModuleId id, const at::Tensor& grad) {
      hook(NnModuleRegistry::get().resolve(id).get(), {grad});
    };
  }
  if (hooks.post_bw) {
    backward.end = [hook = hooks.post_bw](ModuleId id, const Tensors* grads) {
      hook(NnModuleRegistry::get().resolve(id).get(), grads != nullptr ? *grads : Tensors{});
    };
  }
  const std::lock_guard lock(hooks_mutex_);
  hooks_ = std::move(hooks);
  has_pre_fw_ = static_cast<bool>(hooks_.pre_fw);
  has_post_fw_ = static_cast<bool>(hooks_.post_fw);
  activity->set_backward_hooks(std::move(backward));
}

}  // namespace tidegauge
