// SPDX-License-Identifier: BSD-3-Clause
#include "tidegauge/mod_tracker.h"

#include <torch/nn/module.h>

#include <utility>

#include "capture/hooks/moment_facts.h"
#include "capture/modules/nn_module_registry.h"
#include "tidegauge/errors.h"
#include "track/nn_mod_tracker.h"

namespace tidegauge {
namespace {

template <typename Hook>
void fill(Hook& slot, Hook& hook) {
  if (hook) slot = std::move(hook);
}

template <typename Hook>
void check_free(const Hook& slot, const Hook& hook, const char* name) {
  if (slot && hook) {
    throw UsageError(std::string("a ") + name +
                     " is already registered; call clear_user_hooks() before registering another");
  }
}

}  // namespace

ModTracker::ModTracker() : impl_(std::make_shared<NnModTracker>()) {}

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

bool ModTracker::is_bw() const { return moment::in_backward(); }

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

int64_t ModTracker::failure_count() const { return impl_->activity->failures().count(); }
std::string ModTracker::first_failure() const { return impl_->activity->failures().first(); }

}  // namespace tidegauge
