// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/util/flat_table.h"
#include "core/util/id_set.h"
#include "core/events/ids.h"

namespace tidegauge {

/// Names of the modules that one tracker knows, by identity.
///
/// A module that is first seen on its own is a root, named after its class; everything below it is
/// named by its path:
///
///     Net ── encoder ── 0        Net, Net.encoder, Net.encoder.0
///
/// Names follow the latest knowledge: when a root turns out to be the child of another module, it
/// and all that is below it get the longer names. Two living roots of one class are told apart by
/// a number: `Net`, `Net#2`. So are two that a user gave one name.
///
/// Not thread-safe: the owner locks.
class ModuleTree {
 public:
  /// Empty if the module was never named.
  std::string_view name(ModuleId module) const;
  bool knows(ModuleId module) const { return known_.contains(module); }
  /// Known, and below no other module.
  bool is_root(ModuleId module) const;

  /// No-op if the module has a name already.
  void name_root(ModuleId module, std::string_view class_name);
  /// A user's name for it, in place of that of its class. No-op for a module below another.
  void rename_root(ModuleId module, std::string_view name);
  /// `parent` must be known; the last path that is told wins. Ignored if it would put a module
  /// below itself.
  void name_child(ModuleId child, ModuleId parent, std::string_view attribute);

  /// The module died. Its name stays readable (a backward may still run through its nodes) until
  /// `sweep`, but is free for another root.
  void mark_dead(ModuleId module);
  size_t dead_count() const { return dead_count_; }
  /// Drops the dead modules that `is_referenced` does not ask to keep.
  void sweep(const std::function<bool(ModuleId)>& is_referenced);

 private:
  struct Entry {
    ModuleId module;
    std::string name;
    ModuleId parent;
    std::vector<ModuleId> children;
    bool dead = false;
  };

  /// As that of `modules_`.
  std::pair<Entry*, bool> insert(ModuleId module);
  bool is_below(ModuleId module, ModuleId ancestor) const;
  void detach(ModuleId child, const Entry& entry);
  void rename(ModuleId module, std::string name);
  void release_root_name(ModuleId module, const Entry& entry);
  std::string claim_root_name(ModuleId module, std::string_view wanted);

  FlatTable<Entry, &Entry::module> modules_;
  IdSet<ModuleId> known_;  // those in `modules_`: asked at every call of every module
  std::unordered_map<std::string, ModuleId> roots_;
  size_t dead_count_ = 0;
};

}  // namespace tidegauge
