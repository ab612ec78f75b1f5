// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <unordered_map>
#include <vector>

#include "core/events/ids.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// Which module owns a parameter: the module with the lowest id that has it, so that modules which
/// share a parameter agree. Callers guard it.
class TIDEGAUGE_API ParameterOwners {
 public:
  using Ids = std::vector<ModuleId>;
  using VisitParameter = c10::function_ref<void(const at::Tensor&)>;
  /// Visits the own parameters of a module; none if it was destroyed.
  using VisitModule = c10::function_ref<void(ModuleId, VisitParameter)>;

  /// Reads the `modules` up to the owner. None if no module has the parameter.
  static ModuleId search(const at::Tensor& parameter, Ids modules, VisitModule visit);
  using Table = std::unordered_map<const void*, ModuleId>;  // by TensorImpl
  /// The owners of all parameters. Valid until a parameter or module is replaced.
  static Table read(Ids modules, VisitModule visit);
  /// The same answer from a table, which is read again for an unknown parameter.
  ModuleId intern(const at::Tensor& parameter, c10::function_ref<Ids()> modules, VisitModule visit);
  /// Call this when a module appears or is destroyed.
  void clear() { owners_.clear(); }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Owner {
    WeakTensor parameter;  // keeps the address from being reused
    ModuleId module;       // none: no module has the parameter
  };

  std::unordered_map<const c10::TensorImpl*, Owner> owners_;
};

}  // namespace tidegauge
