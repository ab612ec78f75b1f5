// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <functional>
#include <unordered_map>
#include <vector>

#include "capture/modules/parameter_owners.h"
#include "core/events/ids.h"

namespace tidegauge::bindings {

/// Gives each Python nn.Module object an id, by identity (modules may compare equal). Holds weak
/// references only. There is one registry per process; it is never destroyed. All calls need the
/// GIL.
class PyModuleRegistry {
 public:
  static PyModuleRegistry& get();

  /// None if the module has no id.
  ModuleId find(PyObject* module) const;
  /// Raises TypeError if `module` does not support weak references.
  ModuleId intern(PyObject* module);
  /// Python's None if the module was destroyed.
  pybind11::object resolve(ModuleId module) const;
  /// See ParameterOwners. None if no known module has the parameter.
  ModuleId intern_owner(const at::Tensor& parameter);

  /// Called for each module that is destroyed.
  std::function<void(ModuleId)> on_death;

 private:
  struct Entry {
    ModuleId id;
    PyObject* reference;  // owned weakref
  };

  static PyObject* forget(PyObject*, PyObject* reference);
  std::vector<ModuleId> ids() const;
  void visit_parameters(ModuleId module, ParameterOwners::VisitParameter visit) const;

  uint32_t last_id_ = 0;
  std::unordered_map<PyObject*, Entry> by_object_;
  std::unordered_map<ModuleId, PyObject*> by_id_;          // id -> weakref, borrowed
  std::unordered_map<PyObject*, PyObject*> by_reference_;  // weakref -> module's address
  ParameterOwners owners_;
};

}  // namespace tidegauge::bindings
