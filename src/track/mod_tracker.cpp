// SPDX-License-Identifier: BSD-3-Clause
#include "tidegauge/mod_tracker.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "track/mod_tracker_impl.h"
#include "capture/modules/nn_module_registry.h"
#include "core/util/spin_lock.h"
#include "tidegauge/errors.h"
#include "tidegauge/module_scope.h"

namespace tidegauge {

constinit std::atomic<bool> detail::is_any_entered{false};

namespace {

/// `(anonymous namespace)::NetImpl` -> `Net`.
std::string class_name(const torch::nn::Module& module) {
  std::string name = module.name();
  const size_t arguments = std::min(name.find('<'), name.size());
  const size_t scope = name.rfind("::", arguments);
  if (scope != std::string::npos) name.erase(0, scope + 2);
  constexpr std::string_view kSuffix = "Impl";
  if (name.size() > kSuffix.size() && name.ends_with(kSuffix)) {
    name.resize(name.size() - kSuffix.size());
  }
  return name;
}

template <typename Hook>
void fill(Hook& slot, Hook& hook) {
  if (hook) slot = std::move(hook);
}

template <typename Hook>
void check_free(const Hook& slot, const Hook& hook, const char* name) {
  if (slot && hook) {
    throw UsageError(std::string("a ") + name +
                     " is registered already, and there can be only one at a time; call "
                     "clear_user_hooks() before registering another");
  }
}

struct EnteredTrackers {
  SpinLock mutex;
  std::shared_ptr<const ModTracker::Impls> trackers = std::make_shared<ModTracker::Impls>();

  static EnteredTrackers& get() {
    static auto* entered = new EnteredTrackers;
    return *entered;
  }

  template <typename Change>
  void change(Change&& change) {
    const std::lock_guard lock(mutex);
    auto copy = std::make_shared<ModTracker::Impls>(*trackers);
    change(*copy);
    detail::is_any_entered = !copy->empty();
    trackers = std::move(copy);
  }
};

}  // namespace

std::shared_ptr<const ModTracker::Impls> ModTracker::Impl::entered() {
  EnteredTrackers& all = EnteredTrackers::get();
  const std::lock_guard lock(all.mutex);
  return all.trackers;
}

ModTracker::Impl::Impl()
    : activity(ModuleActivity::create([](const at::Tensor& parameter) {
        return NnModuleRegistry::get().find_owner(parameter);
      })) {}

void ModTracker::Impl::start(std::shared_ptr<Impl> self) {
  EnteredTrackers::get().change([&](Impls& all) { all.push_back(std::move(self)); });
}

void ModTracker::Impl::stop() noexcept {
  EnteredTrackers::get().change([&](Impls& all) {
    std::erase_if(all, [&](const auto& each) { return each.get() == this; });
  });
  activity->stop();
}

bool ModTracker::Impl::enter(const torch::nn::Module& module, ModuleId id, at::TensorList inputs) {
  ModuleActivity::Entered entered = activity->enter(id, inputs);
  if (!entered.is_named) {
    for (const ModuleId dead : NnModuleRegistry::get().collect_dead()) activity->mark_dead(dead);
    on_new_modules();
    name_module(module, id);
    entered = activity->enter(id, inputs);
  }
  try {
    on_enter(module, id, entered, inputs);
  } catch (...) {
    activity->leave(id, {});
    throw;
  }
  if (!has_pre_fw_.load(std::memory_order_relaxed)) return entered.is_bw;
  try {
    if (const auto hook = user_hooks().pre_fw) hook(module, inputs.vec());
  } catch (...) {
    on_leave(id, entered.is_bw, {});
    activity->leave(id, {});
    throw;
  }
  return entered.is_bw;
}

void ModTracker::Impl::leave(const torch::nn::Module& module, ModuleId id, bool is_bw,
                             const Tensors& inputs, at::TensorList outputs) {
  const auto finish = [&] {
    on_leave(id, is_bw, outputs);
    activity->leave(id, outputs);
  };
  try {
    if (has_post_fw_hook() && activity->before_leave(id).is_open) {
      if (const auto hook = user_hooks().post_fw) hook(module, inputs, outputs.vec());
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

void ModTracker::Impl::name_module(const torch::nn::Module& module, ModuleId id) {
  const std::vector<ModuleId> active = activity->active();
  for (auto above = active.rbegin(); above != active.rend(); ++above) {
    const auto parent = NnModuleRegistry::get().resolve(*above);
    if (parent) name_children(*parent, *above);
    if (activity->knows(id)) return;
  }
  activity->name_root(id, class_name(module));
  name_children(module, id);
}

void ModTracker::Impl::rename_root(const torch::nn::Module& module, std::string_view name) {
  const ModuleId id = NnModuleRegistry::get().intern(module);
  activity->rename_root(id, name);
  name_children(module, id);
}

void ModTracker::Impl::name_children(const torch::nn::Module& module, ModuleId id) {
  std::unordered_set<const torch::nn::Module*> named;  // each once, under its first name
  for (const auto& child : module.named_children()) {
    if (!named.insert(child.value().get()).second) continue;
    const ModuleId child_id = NnModuleRegistry::get().intern(*child.value());
    activity->name_child(child_id, id, child.key());
    name_children(*child.value(), child_id);
  }
}

ModTracker::UserHooks ModTracker::Impl::user_hooks() const {
  const std::lock_guard lock(hooks_mutex_);
  return hooks_;
}

void ModTracker::Impl::set_user_hooks(UserHooks hooks) {
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

ModTracker::ModTracker() : impl_(std::make_shared<Impl>()) {}

ModTracker::~ModTracker() {
  if (impl_->entry_count > 0) impl_->stop();
}

void ModTracker::enter() {
  if (++impl_->entry_count == 1) impl_->start(impl_);
}

void ModTracker::exit() {
  if (impl_->entry_count == 0) {
    throw UsageError(
        "ModTracker::exit() was called on a tracker that is not entered; call enter() "
        "first");
  }
  if (--impl_->entry_count == 0) impl_->stop();
}

std::vector<std::string> ModTracker::parents() const {
  std::vector<std::string> names{"Global"};
  for (const ModuleId id : impl_->activity->active()) names.push_back(impl_->activity->name(id));
  return names;
}

bool ModTracker::is_bw() const { return torch::autograd::get_current_graph_task_id() != -1; }

std::optional<std::string> ModTracker::get_known_fqn(const torch::nn::Module& module) const {
  const ModuleId id = NnModuleRegistry::get().find(module);
  if (!id || !impl_->activity->knows(id)) return std::nullopt;
  return impl_->activity->name(id);
}

void ModTracker::register_user_hooks(UserHooks hooks) {
  UserHooks all = impl_->user_hooks();
  check_free(all.pre_fw, hooks.pre_fw, "pre_fw hook");
  check_free(all.post_fw, hooks.post_fw, "post_fw hook");
  check_free(all.pre_bw, hooks.pre_bw, "pre_bw hook");
  check_free(all.post_bw, hooks.post_bw, "post_bw hook");
  fill(all.pre_fw, hooks.pre_fw);
  fill(all.post_fw, hooks.post_fw);
  fill(all.pre_bw, hooks.pre_bw);
  fill(all.post_bw, hooks.post_bw);
  impl_->set_user_hooks(std::move(all));
}

void ModTracker::clear_user_hooks() { impl_->set_user_hooks({}); }

int64_t ModTracker::failure_count() const { return impl_->activity->failure_count(); }
std::string ModTracker::first_failure() const { return impl_->activity->first_failure(); }

}  // namespace tidegauge
