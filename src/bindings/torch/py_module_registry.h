// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <functional>
#include <unordered_map>
#include <vector>

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
  /// The known module with the lowest id that has the parameter; none if no known module has it.
  ModuleId find_owner(const at::Tensor& parameter);

  /// Called for each module that is destroyed.
  std::function<void(ModuleId)> on_death;

 private:
  struct Entry {
    ModuleId id;
    PyObject* reference;  // owned weakref
  };
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Owner {
    WeakTensor parameter;  // keeps the address from being reused
    ModuleId module;       // none: no module has the parameter
  };

  static PyObject* forget(PyObject*, PyObject* reference);
  void read_parameters();

  uint32_t last_id_ = 0;
  std::unordered_map<PyObject*, Entry> by_object_;
  std::unordered_map<ModuleId, PyObject*> by_id_;          // id -> weakref, borrowed
  std::unordered_map<PyObject*, PyObject*> by_reference_;  // weakref -> module's address
  std::unordered_map<const c10::TensorImpl*, Owner> owners_;
};

}  // namespace tidegauge::bindings
