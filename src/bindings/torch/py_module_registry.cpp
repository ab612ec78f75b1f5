// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/py_module_registry.h"

#include <torch/csrc/autograd/python_variable.h>

#include "bindings/torch/containment.h"
#include "bindings/torch/tensors.h"
#include "capture/hooks/op_hook.h"

namespace py = pybind11;

namespace tidegauge::bindings {

PyModuleRegistry& PyModuleRegistry::get() {
  static auto* registry = new PyModuleRegistry;
  return *registry;
}

ModuleId PyModuleRegistry::find(PyObject* module) const {
  const auto it = by_object_.find(module);
  return it == by_object_.end() ? ModuleId{} : it->second.id;
}

ModuleId PyModuleRegistry::intern(PyObject* module) {
  if (const ModuleId known = find(module)) return known;
  static PyMethodDef method{"forget_module", &PyModuleRegistry::forget, METH_O, nullptr};
  static PyObject* callback = PyCFunction_New(&method, nullptr);
  PyObject* reference = PyWeakref_NewRef(module, callback);
  if (reference == nullptr) throw py::error_already_set();
  const ModuleId id{++last_id_};
  by_object_.emplace(module, Entry{id, reference});
  by_id_.emplace(id, reference);
  by_reference_.emplace(reference, module);
  owners_.clear();
  return id;
}

py::object PyModuleRegistry::resolve(ModuleId module) const {
  const auto it = by_id_.find(module);
  if (it == by_id_.end()) return py::none();
  return py::reinterpret_borrow<py::object>(PyWeakref_GetObject(it->second));
}

PyObject* PyModuleRegistry::forget(PyObject*, PyObject* reference) {
  PyModuleRegistry& self = get();
  const auto it = self.by_reference_.find(reference);
  if (it != self.by_reference_.end()) {
    const ModuleId id = self.by_object_.at(it->second).id;
    self.by_object_.erase(it->second);
    self.by_id_.erase(id);
    self.by_reference_.erase(it);
    self.owners_.clear();         // another module may share its parameters
    const py::error_scope error;  // of the program
    contain_python(op_hook::failures(), "the end of a module", [&] {
      if (self.on_death) self.on_death(id);
    });
    Py_DECREF(reference);
  }
  Py_RETURN_NONE;
}

ModuleId PyModuleRegistry::intern_owner(const at::Tensor& parameter) {
  return owners_.intern(
      parameter, [&] { return ids(); },
      [&](ModuleId module, ParameterOwners::VisitParameter visit) {
        visit_parameters(module, visit);
      });
}

std::vector<ModuleId> PyModuleRegistry::ids() const {
  std::vector<ModuleId> ids;
  ids.reserve(by_id_.size());
  for (const auto& [id, reference] : by_id_) ids.push_back(id);
  return ids;
}

void PyModuleRegistry::visit_parameters(ModuleId id, ParameterOwners::VisitParameter visit) const {
  const py::object module = resolve(id);
  if (module.is_none()) return;
  const py::object parameters = py::getattr(module, "_parameters", py::none());
  if (!py::isinstance<py::dict>(parameters)) return;
  for (const auto& [name, value] : parameters.cast<py::dict>()) {
    if (is_tensor(value.ptr())) visit(THPVariable_Unpack(value.ptr()));
  }
}

}  // namespace tidegauge::bindings
