// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "capture/modules/parameter_owners.h"
#include "core/events/ids.h"
#include "core/util/flat_table.h"
#include "core/util/spin_lock.h"

namespace tidegauge {

/// Gives each torch::nn::Module object an id. Holds weak references only. There is one registry per
/// process; it is never destroyed. Thread-safe.
class NnModuleRegistry {
 public:
  static NnModuleRegistry& get();

  /// None if the module has no id.
  ModuleId find(const torch::nn::Module& module) const;
  ModuleId intern(const torch::nn::Module& module);
  /// Null if the module was destroyed. A module without a shared_ptr counts as alive.
  std::shared_ptr<const torch::nn::Module> resolve(ModuleId module) const;
  bool is_alive(ModuleId module) const;
  /// See ParameterOwners. None if no known module has the parameter.
  ModuleId find_owner(const at::Tensor& parameter) const;
  ParameterOwners::Table parameter_owners() const;
  /// Forgets the modules that were destroyed and returns their ids.
  std::vector<ModuleId> collect_dead();

 private:
  struct Entry {
    const torch::nn::Module* object = nullptr;
    ModuleId id;
    std::weak_ptr<const torch::nn::Module> reference;
    bool is_shared = false;

    bool is_dead() const { return is_shared && reference.expired(); }
  };

  std::vector<ModuleId> ids() const;
  void visit_parameters(ModuleId module, ParameterOwners::VisitParameter visit) const;
  [[gnu::noinline, gnu::cold]] ModuleId add(const torch::nn::Module& module);

  mutable SpinLock mutex_;
  uint32_t last_id_ = 0;
  FlatTable<Entry, &Entry::object> by_object_;
  std::unordered_map<ModuleId, const torch::nn::Module*> by_id_;
  std::vector<ModuleId> dead_;  // destroyed modules whose address belongs to a new module
};

}  // namespace tidegauge
