// SPDX-License-Identifier: BSD-3-Clause
#include "core/modules/module_tree.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace tidegauge {
namespace {

/// Throws for a module without a name, which would damage the tree.
template <typename Table>
auto& at(Table& modules, ModuleId module) {
  auto* entry = modules.find(module);
  if (entry == nullptr) {
    throw std::out_of_range("module " + std::to_string(module.value) +
                            " has no name; name it before those below it");
  }
  return *entry;
}

}  // namespace

std::string_view ModuleTree::name(ModuleId module) const {
  const Entry* entry = modules_.find(module);
  return entry == nullptr ? std::string_view{} : entry->name;
}

bool ModuleTree::is_root(ModuleId module) const {
  const Entry* entry = modules_.find(module);
  return entry != nullptr && !entry->parent;
}

void ModuleTree::name_root(ModuleId module, std::string_view class_name) {
  const auto [entry, is_new] = insert(module);
  if (is_new) entry->name = make_root_name(module, class_name);
}

void ModuleTree::rename_root(ModuleId module, std::string_view name) {
  const Entry& entry = *insert(module).first;
  if (entry.parent) return;
  release_root_name(module, entry);
  rename(module, make_root_name(module, name));
}

void ModuleTree::name_child(ModuleId child, ModuleId parent, std::string_view attribute) {
  if (is_below(parent, child)) return;
  Entry& entry = *insert(child).first;
  if (entry.parent) {
    detach(child, entry);
  } else {
    release_root_name(child, entry);
  }
  entry.parent = parent;
  Entry& above = at(modules_, parent);
  above.children.push_back(child);
  rename(child, above.name + "." + std::string(attribute));
}

void ModuleTree::mark_dead(ModuleId module) {
  Entry* entry = modules_.find(module);
  if (entry == nullptr || entry->dead) return;
  entry->dead = true;
  ++dead_count_;
  release_root_name(module, *entry);
}

void ModuleTree::sweep(const std::function<bool(ModuleId)>& is_referenced) {
  std::vector<ModuleId> gone;
  modules_.visit([&](const Entry& entry) {
    if (entry.dead && !is_referenced(entry.module)) gone.push_back(entry.module);
  });
  for (const ModuleId module : gone) {
    Entry* entry = modules_.find(module);
    if (entry->parent) detach(module, *entry);
    for (const ModuleId child : entry->children) at(modules_, child).parent = ModuleId{};
    modules_.erase(entry);
    known_.erase(module);
  }
  dead_count_ -= gone.size();
}

bool ModuleTree::is_below(ModuleId module, ModuleId ancestor) const {
  for (; module; module = at(modules_, module).parent) {
    if (module == ancestor) return true;
  }
  return false;
}

void ModuleTree::detach(ModuleId child, const Entry& entry) {
  std::erase(at(modules_, entry.parent).children, child);
}

void ModuleTree::rename(ModuleId module, std::string name) {
  Entry& entry = at(modules_, module);
  const size_t old_length = entry.name.size();
  entry.name = std::move(name);
  for (const ModuleId child : entry.children) {
    rename(child, entry.name + at(modules_, child).name.substr(old_length));
  }
}

std::pair<ModuleTree::Entry*, bool> ModuleTree::insert(ModuleId module) {
  known_.insert(module);
  return modules_.insert(module);
}

std::string ModuleTree::make_root_name(ModuleId module, std::string_view wanted) {
  std::string name(wanted);
  for (int number = 2; roots_.contains(name); ++number) {
    name = std::string(wanted) + "#" + std::to_string(number);
  }
  roots_.emplace(name, module);
  return name;
}

void ModuleTree::release_root_name(ModuleId module, const Entry& entry) {
  const auto it = roots_.find(entry.name);
  if (it != roots_.end() && it->second == module) roots_.erase(it);
}

}  // namespace tidegauge
