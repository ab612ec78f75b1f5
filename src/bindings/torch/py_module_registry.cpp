// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/py_module_registry.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

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

ModuleId PyModuleRegistry::find_owner(const at::Tensor& parameter) {
  const c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
  auto it = owners_.find(impl);
  if (it == owners_.end() || it->second.parameter.expired()) {
    read_parameters();
    it = owners_.find(impl);
  }
  if (it != owners_.end()) return it->second.module;
  // No module has this parameter. Store that, so that the modules are not read again for it.
  owners_.emplace(impl, Owner{WeakTensor(parameter.getIntrusivePtr()), {}});
  return {};
}

void PyModuleRegistry::read_parameters() {
  owners_.clear();
  std::vector<std::pair<ModuleId, PyObject*>> modules(by_id_.begin(), by_id_.end());
  std::sort(modules.begin(), modules.end());
  for (const auto& [id, reference] : modules) {
    PyObject* module = PyWeakref_GetObject(reference);
    if (module == Py_None) continue;
    const py::object parameters = py::getattr(py::handle(module), "_parameters", py::none());
    if (!py::isinstance<py::dict>(parameters)) continue;
    for (const auto& [name, value] : parameters.cast<py::dict>()) {
      if (!is_tensor(value.ptr())) continue;
      const auto& impl = THPVariable_Unpack(value.ptr()).getIntrusivePtr();
      owners_.emplace(impl.get(), Owner{WeakTensor(impl), id});
    }
  }
}

}  // namespace tidegauge::bindings
