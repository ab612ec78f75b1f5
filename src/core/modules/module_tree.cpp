// SPDX-License-Identifier: BSD-3-Clause
#include "core/modules/module_tree.h"

#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/util/module_path.h"

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

/// From the module up to its root.
std::vector<const ModuleTree::Entry*> ModuleTree::path(ModuleId module) const {
  std::vector<const Entry*> entries;
  while (const Entry* entry = module ? modules_.find(module) : nullptr) {
    entries.push_back(entry);
    module = entry->parent;
  }
  return entries;
}

/// `entries`: the lowest first.
std::string ModuleTree::join(std::span<const Entry* const> entries) {
  std::string name;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry != entries.rbegin()) name += '.';
    name += (*entry)->part;
  }
  return name;
}

std::string ModuleTree::name(ModuleId module) const { return join(path(module)); }

std::string ModuleTree::short_name(ModuleId module) const {
  const Entry* entry = modules_.find(module);
  if (entry == nullptr || entry->depth < 2 * kPathEndParts) return name(module);
  std::vector<const Entry*> last;
  const size_t count = entry->depth + 1;
  const ModuleId anchor = entry->anchor;
  while (last.size() < kPathEndParts - 1) {
    last.push_back(entry);
    entry = &at(modules_, entry->parent);
  }
  return name(anchor) + "." + omitted_parts(count - 2 * kPathEndParts + 1) + "." + join(last);
}

/// Sets what depends on the path, after a change of the parent, for all modules below as well.
void ModuleTree::settle(Entry& moved) {
  std::vector<Entry*> waiting{&moved};
  while (!waiting.empty()) {
    Entry& entry = *waiting.back();
    waiting.pop_back();
    const Entry* above = entry.parent ? &at(modules_, entry.parent) : nullptr;
    entry.depth = above != nullptr ? above->depth + 1 : 0;
    entry.anchor = entry.depth < kPathEndParts ? entry.module : above->anchor;
    for (const ModuleId child : entry.children) waiting.push_back(&at(modules_, child));
  }
}

bool ModuleTree::is_root(ModuleId module) const {
  const Entry* entry = modules_.find(module);
  return entry != nullptr && !entry->parent;
}

void ModuleTree::name_root(ModuleId module, std::string_view class_name) {
  const auto [entry, is_new] = insert(module);
  if (!is_new) return;
  entry->part = make_root_name(module, class_name);
  settle(*entry);
}

void ModuleTree::rename_root(ModuleId module, std::string_view name) {
  Entry& entry = *insert(module).first;
  if (entry.parent) return;
  release_root_name(module, entry);
  entry.part = make_root_name(module, name);
  settle(entry);
}

void ModuleTree::name_child(ModuleId child, ModuleId parent, std::string_view attribute) {
  at(modules_, parent);  // throws before anything changes
  const Entry* known = modules_.find(child);
  if (known != nullptr && known->parent == parent && known->part == attribute) return;
  if (is_below(parent, child)) return;
  Entry& entry = *insert(child).first;
  if (entry.parent) {
    detach(child, entry);
  } else {
    release_root_name(child, entry);
  }
  entry.parent = parent;
  entry.part = attribute;
  at(modules_, parent).children.push_back(child);
  settle(entry);
}

void ModuleTree::mark_dead(ModuleId module) {
  Entry* entry = modules_.find(module);
  if (entry == nullptr || entry->dead) return;
  entry->dead = true;
  ++dead_count_;
  release_root_name(module, *entry);
}

void ModuleTree::sweep(const std::function<bool(ModuleId)>& is_referenced) {
  std::unordered_set<ModuleId> gone;
  modules_.visit([&](const Entry& entry) {
    if (entry.dead && !is_referenced(entry.module)) gone.insert(entry.module);
  });
  // The modules below that stay keep their names.
  for (const ModuleId module : gone) {
    for (const ModuleId child : at(modules_, module).children) {
      if (gone.contains(child)) continue;
      std::string whole = name(child);
      Entry& kept = at(modules_, child);
      kept.part = std::move(whole);
      kept.parent = ModuleId{};
      settle(kept);
    }
  }
  for (const ModuleId module : gone) {
    Entry* entry = modules_.find(module);
    if (entry->parent && !gone.contains(entry->parent)) detach(module, *entry);
    modules_.erase(entry);
    known_.erase(module);
  }
  dead_count_ -= gone.size();
}

bool ModuleTree::is_below(ModuleId module, ModuleId ancestor) const {
  const Entry* above = modules_.find(ancestor);
  if (above == nullptr || above->children.empty()) return module == ancestor;
  for (; module; module = at(modules_, module).parent) {
    if (module == ancestor) return true;
  }
  return false;
}

void ModuleTree::detach(ModuleId child, const Entry& entry) {
  std::erase(at(modules_, entry.parent).children, child);
}

std::pair<ModuleTree::Entry*, bool> ModuleTree::insert(ModuleId module) {
  known_.insert(module);
  return modules_.insert(module);
}

std::string ModuleTree::make_root_name(ModuleId module, std::string_view wanted) {
  std::string name(wanted);
  if (roots_.contains(name)) {
    int& number = next_numbers_.try_emplace(name, 2).first->second;
    do {
      name = std::string(wanted) + "#" + std::to_string(number++);
    } while (roots_.contains(name));
  }
  roots_.emplace(name, module);
  return name;
}

void ModuleTree::release_root_name(ModuleId module, const Entry& entry) {
  const auto it = roots_.find(entry.part);
  if (entry.parent || it == roots_.end() || it->second != module) return;
  next_numbers_.erase(entry.part.substr(0, entry.part.rfind('#')));  // a number is free again
  roots_.erase(it);
}

}  // namespace tidegauge
