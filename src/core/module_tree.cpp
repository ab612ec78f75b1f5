// SPDX-License-Identifier: BSD-3-Clause
#include "core/module_tree.h"

#include <utility>

namespace tidegauge {

std::string_view ModuleTree::name(ModuleId module) const {
  const auto it = modules_.find(module);
  return it == modules_.end() ? std::string_view{} : it->second.name;
}

bool ModuleTree::is_root(ModuleId module) const {
  const auto it = modules_.find(module);
  return it != modules_.end() && !it->second.parent;
}

void ModuleTree::name_root(ModuleId module, std::string_view class_name) {
  const auto [it, is_new] = modules_.try_emplace(module);
  if (!is_new) return;
  std::string name(class_name);
  for (int number = 2; roots_.contains(name); ++number) {
    name = std::string(class_name) + "#" + std::to_string(number);
  }
  roots_.emplace(name, module);
  it->second.name = std::move(name);
}

void ModuleTree::name_child(ModuleId child, ModuleId parent, std::string_view attribute) {
  if (is_below(parent, child)) return;
  Entry& entry = modules_[child];
  if (entry.parent) {
    detach(child, entry);
  } else {
    release_root_name(child, entry);
  }
  entry.parent = parent;
  Entry& above = modules_.at(parent);
  above.children.push_back(child);
  rename(child, above.name + "." + std::string(attribute));
}

void ModuleTree::mark_dead(ModuleId module) {
  const auto it = modules_.find(module);
  if (it == modules_.end() || it->second.dead) return;
  it->second.dead = true;
  ++dead_count_;
  release_root_name(module, it->second);
}

void ModuleTree::sweep(const std::function<bool(ModuleId)>& is_referenced) {
  for (auto it = modules_.begin(); it != modules_.end();) {
    const auto& [module, entry] = *it;
    if (!entry.dead || is_referenced(module)) {
      ++it;
      continue;
    }
    if (entry.parent) detach(module, entry);
    for (const ModuleId child : entry.children) modules_.at(child).parent = ModuleId{};
    it = modules_.erase(it);
    --dead_count_;
  }
}

bool ModuleTree::is_below(ModuleId module, ModuleId ancestor) const {
  for (; module; module = modules_.at(module).parent) {
    if (module == ancestor) return true;
  }
  return false;
}

void ModuleTree::detach(ModuleId child, const Entry& entry) {
  std::erase(modules_.at(entry.parent).children, child);
}

void ModuleTree::rename(ModuleId module, std::string name) {
  Entry& entry = modules_.at(module);
  const size_t old_length = entry.name.size();
  entry.name = std::move(name);
  for (const ModuleId child : entry.children) {
    rename(child, entry.name + modules_.at(child).name.substr(old_length));
  }
}

void ModuleTree::release_root_name(ModuleId module, const Entry& entry) {
  const auto it = roots_.find(entry.name);
  if (it != roots_.end() && it->second == module) roots_.erase(it);
}

}  // namespace tidegauge
