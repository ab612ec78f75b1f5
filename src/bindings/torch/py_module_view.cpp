// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/py_module_view.h"

#include <torch/csrc/autograd/python_variable.h>

#include <unordered_set>
#include <utility>
#include <vector>

#include "bindings/torch/containment.h"
#include "bindings/torch/py_module_registry.h"
#include "bindings/torch/tensors.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using Kind = ModuleView::Kind;

/// Interned once, because creating a string costs more than the lookup.
PyObject* name_of(Kind kind) {
  static PyObject* parameters = PyUnicode_InternFromString("_parameters");
  static PyObject* buffers = PyUnicode_InternFromString("_buffers");
  return kind == Kind::Parameter ? parameters : buffers;
}

/// An attribute from the dictionary of the object, without __getattr__. Null if there is none.
py::object own_attribute(py::handle object, PyObject* name) {
  PyObject** attributes = _PyObject_GetDictPtr(object.ptr());
  if (attributes == nullptr || *attributes == nullptr) return {};
  return py::reinterpret_borrow<py::object>(PyDict_GetItemWithError(*attributes, name));
}

/// Calls `visit(name, value)` for each value that is not None.
template <typename Visit>
void visit_dict(py::handle values, Visit&& visit) {
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(values.ptr(), &position, &name, &value) != 0;) {
    if (value != Py_None) visit(name, value);
  }
}

template <typename Visit>
void visit_values(py::handle module, Kind kind, Visit&& visit) {
  const py::object values = own_attribute(module, name_of(kind));
  if (values && PyDict_Check(values.ptr())) visit_dict(values, visit);
}

OwnedTensor read_owned(PyObject* value) {
  const c10::StorageImpl* storage = nullptr;
  if (is_tensor(value)) {
    const c10::TensorImpl* impl = THPVariable_Unpack(value).unsafeGetTensorImpl();
    if (impl->has_storage()) storage = impl->unsafe_storage().unsafeGetStorageImpl();
  }
  return {value, storage};
}

py::object borrow(PyObject* object) { return py::reinterpret_borrow<py::object>(object); }

/// The names and children. A copy, because a visitor may run Python code that changes the
/// dictionary.
std::vector<std::pair<py::object, py::object>> read_children(py::handle module) {
  std::vector<std::pair<py::object, py::object>> children;
  std::unordered_set<PyObject*> listed{Py_None};
  const auto add = [&](PyObject* name, PyObject* child) {
    const bool is_module = PyType_SUPPORTS_WEAKREFS(Py_TYPE(child)) != 0;
    if (is_module && listed.insert(child).second)
      children.emplace_back(borrow(name), borrow(child));
  };
  static PyObject* name = PyUnicode_InternFromString("_modules");
  py::object modules = own_attribute(module, name);
  if (modules && PyDict_Check(modules.ptr())) {
    visit_dict(modules, add);
    return children;
  }
  modules = py::getattr(module, name, py::dict());  // a scripted module has another mapping
  for (const py::handle item : modules.attr("items")()) {
    const auto pair = item.cast<py::tuple>();
    add(py::object(pair[0]).ptr(), py::object(pair[1]).ptr());
  }
  return children;
}

class PyModuleSource final : public ModuleSource {
 public:
  std::shared_ptr<const ModuleView> view(ModuleId module) const override {
    py::object alive = PyModuleRegistry::get().resolve(module);
    return alive.is_none() ? nullptr : std::make_shared<PyModuleView>(std::move(alive));
  }
  bool is_alive(ModuleId module) const override {
    return !PyModuleRegistry::get().resolve(module).is_none();
  }
  bool is_guarded_by_gil() const override { return true; }
  bool names_direct_children_only() const override { return true; }
};

}  // namespace

std::string class_name(py::handle object) {
  const py::handle type = py::type::handle_of(object);
  const py::object module = py::getattr(type, "__module__", py::none());
  const auto name = py::reinterpret_steal<py::object>(PyType_GetQualName(Py_TYPE(object.ptr())));
  return text_of(module.ptr()) + "." + text_of(name.ptr());
}

ModuleId PyModuleView::intern() const { return PyModuleRegistry::get().intern(module_.ptr()); }

std::string PyModuleView::class_name() const { return bindings::class_name(module_); }

std::string PyModuleView::root_name() const {
  return text_of(py::reinterpret_steal<py::object>(PyType_GetName(Py_TYPE(module_.ptr()))).ptr());
}

void PyModuleView::visit_children(VisitChild visit) const {
  for (const auto& [name, child] : read_children(module_)) {
    visit(text_of(name.ptr()), PyModuleView(child));
  }
}

void PyModuleView::visit_owned(Kind kind, VisitOwned visit) const {
  visit_values(module_, kind, [&](PyObject* name, PyObject* value) {
    const py::object held = borrow(value);
    const std::string text = text_of(name);  // now: Python code may drop the name
    ScratchTensors memory;
    append_inner_tensors(value, *memory);
    visit(text, read_owned(value), *memory);
  });
}

void PyModuleView::visit_gradients(VisitGradient visit) const {
  visit_values(module_, Kind::Parameter, [&](PyObject*, PyObject* value) {
    if (!is_tensor(value)) return;
    const py::object held = borrow(value);
    const at::Tensor& grad = THPVariable_Unpack(value).grad();
    if (!grad.defined()) return;
    const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(grad));
    ScratchTensors parameter_memory;
    ScratchTensors memory;
    append_inner_tensors(value, *parameter_memory);
    append_inner_tensors(object.ptr(), *memory);
    visit(*parameter_memory, *memory);
  });
}

bool PyModuleView::has_exchanged(std::span<const OwnedTensor> last) const {
  size_t count = 0;
  bool is_same = true;
  const auto compare = [&](PyObject*, PyObject* value) {
    const OwnedTensor now = read_owned(value);
    is_same = is_same && count < last.size() && last[count].object == now.object &&
              last[count].storage == now.storage;
    ++count;
  };
  visit_values(module_, Kind::Parameter, compare);
  visit_values(module_, Kind::Buffer, compare);
  return !is_same || count != last.size();
}

const ModuleSource& py_modules() {
  static const auto* source = new PyModuleSource;
  return *source;
}

}  // namespace tidegauge::bindings
