// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/nn_module_registry.h"

#include <functional>
#include <mutex>
#include <utility>
namespace tidegauge {

NnModuleRegistry& NnModuleRegistry::get() {
  static auto* registry = new NnModuleRegistry;
  return *registry;
}

ModuleId NnModuleRegistry::find(const torch::nn::Module& module) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = by_object_.find(&module);
  return entry == nullptr || entry->is_dead() ? ModuleId{} : entry->id;
}

ModuleId NnModuleRegistry::intern(const torch::nn::Module& module) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = by_object_.find(&module);
  return entry != nullptr && !entry->is_dead() ? entry->id : add(module);
}

ModuleId NnModuleRegistry::add(const torch::nn::Module& module) {
  Entry& entry = *by_object_.insert(&module).first;
  if (entry.id) {
    dead_.push_back(entry.id);
    by_id_.erase(entry.id);
  }
  entry.id = ModuleId(++last_id_);
  entry.reference = module.weak_from_this();
  entry.is_shared = !entry.reference.expired();
  by_id_.emplace(entry.id, &module);
  return entry.id;
}

std::shared_ptr<const torch::nn::Module> NnModuleRegistry::resolve(ModuleId module) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_id_.find(module);
  if (it == by_id_.end()) return nullptr;
  const Entry& entry = *by_object_.find(it->second);
  if (entry.is_shared) return entry.reference.lock();
  return {std::shared_ptr<void>(), it->second};
}

bool NnModuleRegistry::is_alive(ModuleId module) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_id_.find(module);
  return it != by_id_.end() && !by_object_.find(it->second)->is_dead();
}

std::vector<ModuleId> NnModuleRegistry::ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModuleId> ids;
  ids.reserve(by_id_.size());
  for (const auto& [id, module] : by_id_) ids.push_back(id);
  return ids;
}

void NnModuleRegistry::visit_parameters(ModuleId id, ParameterOwners::VisitParameter visit) const {
  const auto module = resolve(id);
  if (!module) return;
  for (const at::Tensor& own : module->parameters(/*recurse=*/false)) visit(own);
}

// No table is kept: modules die unnoticed, so it could be out of date.
ModuleId NnModuleRegistry::find_owner(const at::Tensor& parameter) const {
  return ParameterOwners::search(parameter, ids(),
                                 std::bind_front(&NnModuleRegistry::visit_parameters, this));
}

ParameterOwners::Table NnModuleRegistry::parameter_owners() const {
  return ParameterOwners::read(ids(), std::bind_front(&NnModuleRegistry::visit_parameters, this));
}

std::vector<ModuleId> NnModuleRegistry::collect_dead() {
  const std::lock_guard lock(mutex_);
  std::vector<ModuleId> dead = std::exchange(dead_, {});
  std::vector<const torch::nn::Module*> gone;
  by_object_.visit([&](const Entry& entry) {
    if (entry.is_dead()) gone.push_back(entry.object);
  });
  for (const torch::nn::Module* object : gone) {
    Entry* entry = by_object_.find(object);
    dead.push_back(entry->id);
    by_id_.erase(entry->id);
    by_object_.erase(entry);
  }
  return dead;
}

}  // namespace tidegauge
