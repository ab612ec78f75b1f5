// SPDX-License-Identifier: BSD-3-Clause
#include "capture/nn_module_registry.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace tidegauge {

NnModuleRegistry& NnModuleRegistry::get() {
  static auto* registry = new NnModuleRegistry;
  return *registry;
}

ModuleId NnModuleRegistry::find(const torch::nn::Module& module) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_object_.find(&module);
  return it == by_object_.end() || it->second.is_dead() ? ModuleId{} : it->second.id;
}

ModuleId NnModuleRegistry::intern(const torch::nn::Module& module) {
  const std::lock_guard lock(mutex_);
  const auto it = by_object_.find(&module);
  if (it != by_object_.end()) {
    if (!it->second.is_dead()) return it->second.id;
    dead_.push_back(it->second.id);
    by_id_.erase(it->second.id);
    by_object_.erase(it);
  }
  const std::weak_ptr<const torch::nn::Module> reference = module.weak_from_this();
  const ModuleId id{++last_id_};
  by_object_.emplace(&module, Entry{id, reference, !reference.expired()});
  by_id_.emplace(id, &module);
  return id;
}

std::shared_ptr<const torch::nn::Module> NnModuleRegistry::resolve(ModuleId module) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_id_.find(module);
  if (it == by_id_.end()) return nullptr;
  const Entry& entry = by_object_.at(it->second);
  if (entry.is_shared) return entry.reference.lock();
  return {std::shared_ptr<void>(), it->second};
}

bool NnModuleRegistry::is_alive(ModuleId module) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_id_.find(module);
  return it != by_id_.end() && !by_object_.at(it->second).is_dead();
}

ModuleId NnModuleRegistry::find_owner(const at::Tensor& parameter) const {
  std::vector<ModuleId> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, module] : by_id_) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const ModuleId id : ids) {
    const auto module = resolve(id);
    if (!module) continue;
    for (const at::Tensor& own : module->parameters(/*recurse=*/false)) {
      if (own.is_same(parameter)) return id;
    }
  }
  return {};
}

std::vector<ModuleId> NnModuleRegistry::collect_dead() {
  const std::lock_guard lock(mutex_);
  std::vector<ModuleId> dead = std::exchange(dead_, {});
  std::erase_if(by_object_, [&](const auto& item) {
    if (!item.second.is_dead()) return false;
    dead.push_back(item.second.id);
    by_id_.erase(item.second.id);
    return true;
  });
  return dead;
}

}  // namespace tidegauge
