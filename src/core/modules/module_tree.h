// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/events/ids.h"
#include "core/util/flat_table.h"
#include "core/util/id_set.h"

namespace tidegauge {

/// The names of the modules of one tracker.
///
/// A module that is called outside of other modules is a root, named after its class. All modules
/// below it are named by their paths:
///
///     Net ── encoder ── 0        Net, Net.encoder, Net.encoder.0
///
/// Names can change: when a root is found to be the child of another module, it and all modules
/// below it get longer names. Live roots with the same name get numbers: `Net`, `Net#2`.
///
/// Not thread-safe: the owner must lock.
class ModuleTree {
 public:
  /// Empty if the module was never named. Takes time proportional to the depth of the module.
  std::string name(ModuleId module) const;
  /// The same, but of a module that is nested very deeply only the first and the last parts.
  std::string short_name(ModuleId module) const;
  bool knows(ModuleId module) const { return known_.contains(module); }
  /// True if the module has a name and is below no other module.
  bool is_root(ModuleId module) const;

  /// No effect if the module already has a name.
  void name_root(ModuleId module, std::string_view class_name);
  /// Replaces the class name by the user's name. No effect for a module below another one.
  void rename_root(ModuleId module, std::string_view name);
  /// `parent` must have a name. A later path replaces an earlier one. No effect if it would put a
  /// module below itself.
  void name_child(ModuleId child, ModuleId parent, std::string_view attribute);

  /// Call when the module is destroyed. Its name stays readable until `sweep`, because a backward
  /// may still run its nodes; but another root may take the same name.
  void mark_dead(ModuleId module);
  size_t dead_count() const { return dead_count_; }
  /// Drops the dead modules for which `is_referenced` is false.
  void sweep(const std::function<bool(ModuleId)>& is_referenced);

 private:
  struct Entry {
    ModuleId module;
    std::string part;  // a root: its name; else the attribute of the parent
    ModuleId parent;
    std::vector<ModuleId> children;
    size_t depth = 0;
    ModuleId anchor;  // itself, or the module above that is the last of the first parts
    bool dead = false;
  };

  /// Like `modules_.insert`.
  std::pair<Entry*, bool> insert(ModuleId module);
  bool is_below(ModuleId module, ModuleId ancestor) const;
  std::vector<const Entry*> path(ModuleId module) const;
  void settle(Entry& moved);
  static std::string join(std::span<const Entry* const> entries);
  void detach(ModuleId child, const Entry& entry);
  void release_root_name(ModuleId module, const Entry& entry);
  std::string make_root_name(ModuleId module, std::string_view wanted);

  FlatTable<Entry, &Entry::module> modules_;
  IdSet<ModuleId> known_;  // the keys of `modules_`, for a fast lookup at every module call
  std::unordered_map<std::string, ModuleId> roots_;
  std::unordered_map<std::string, int> next_numbers_;  // smaller numbers of this name are taken
  size_t dead_count_ = 0;
};

}  // namespace tidegauge
