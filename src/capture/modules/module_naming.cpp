// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/module_naming.h"

#include <cstddef>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tidegauge {
namespace {

constexpr size_t kMostSearched = 256;

/// Visits the children of each module once, however many paths lead to it. A module that has
/// several parents has the path of the last one.
void name_below(ModuleActivity& activity, const ModuleView& module, ModuleId id,
                std::unordered_set<ModuleId>& visited) {
  if (!visited.insert(id).second) return;
  module.visit_children([&](std::string_view name, const ModuleView& child) {
    const ModuleId child_id = child.intern();
    activity.name_child(child_id, id, name);
    name_below(activity, child, child_id, visited);
  });
}

bool has_child(const ModuleView& parent, ModuleId id) {
  bool is_found = false;
  parent.visit_children(
      [&](std::string_view, const ModuleView& child) { is_found |= child.intern() == id; });
  return is_found;
}

}  // namespace

void name_called(ModuleActivity& activity, const ModuleSource& source, const ModuleView& module,
                 ModuleId id) {
  const std::vector<ModuleId> active = activity.last_active(kMostSearched);
  for (auto above = active.rbegin(); above != active.rend(); ++above) {
    const std::shared_ptr<const ModuleView> parent = source.view(*above);
    if (!parent) continue;
    if (source.names_direct_children_only() && !has_child(*parent, id)) continue;
    name_children(activity, *parent, *above);
    if (activity.knows(id)) return;
  }
  name_root(activity, module, id);
}

void name_root(ModuleActivity& activity, const ModuleView& module, ModuleId id) {
  if (activity.knows(id)) return;
  activity.name_root(id, module.root_name());
  name_children(activity, module, id);
}

void name_children(ModuleActivity& activity, const ModuleView& module, ModuleId id) {
  std::unordered_set<ModuleId> visited;
  name_below(activity, module, id, visited);
}

}  // namespace tidegauge
