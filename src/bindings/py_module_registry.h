// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <functional>
#include <unordered_map>
#include <vector>

#include "core/events/ids.h"

namespace tidegauge::bindings {

/// Gives each living nn.Module of Python an id, by identity (modules may compare equal). Holds
/// weak references only. One per process, never destroyed; all calls need the GIL.
class PyModuleRegistry {
 public:
  static PyModuleRegistry& get();

  /// None if the module has no id.
  ModuleId find(PyObject* module) const;
  /// TypeError if no weak reference to `module` can be made.
  ModuleId intern(PyObject* module);
  /// Python's None if the module died.
  pybind11::object resolve(ModuleId module) const;
  /// The module that registered the parameter first; none if no known module has it.
  ModuleId find_owner(const at::Tensor& parameter);

  /// Called for each module that dies.
  std::function<void(ModuleId)> on_death;

 private:
  struct Entry {
    ModuleId id;
    PyObject* reference;  // owned weakref
  };
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Owner {
    WeakTensor parameter;  // keeps the address from being reused
    ModuleId module;       // none: known not to be a parameter
  };

  static PyObject* forget(PyObject*, PyObject* reference);
  void read_parameters();

  uint32_t last_id_ = 0;
  std::unordered_map<PyObject*, Entry> by_object_;
  std::unordered_map<ModuleId, PyObject*> by_id_;          // borrowed weakref
  std::unordered_map<PyObject*, PyObject*> by_reference_;  // weakref -> module's address
  std::unordered_map<const c10::TensorImpl*, Owner> owners_;
};

}  // namespace tidegauge::bindings
