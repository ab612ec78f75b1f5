// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/tensors.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "bindings/torch/containment.h"
#include "capture/hooks/op_hook.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

bool is_plain_leaf(PyObject* object) {
  return object == Py_None || PyLong_Check(object) || PyFloat_Check(object) ||
         PyUnicode_Check(object) || PyBytes_Check(object);
}

constexpr int kDeepest = 64;  // a list can contain itself, and a wrapper return itself
/// An output may refer to the whole program. This many objects are enough for any structure that
/// only carries tensors.
constexpr size_t kMostObjects = 1000;

using AppendTensor = void (*)(PyObject* tensor, std::vector<at::Tensor>& tensors);

/// One search for tensors.
struct Search {
  const AppendTensor append_tensor;
  std::vector<at::Tensor>& tensors;
  const bool reads_attributes;
  std::vector<PyObject*> objects = {};  ///< whose attributes were read; usually empty
};

/// For objects of other classes: registered with pytree (key-value caches), or with attributes
/// (dataclasses).
void append_from_object(PyObject* object, Search& search, int depth);

void append(PyObject* object, Search& search, int depth) {
  if (depth > kDeepest) return;
  const auto held = py::reinterpret_borrow<py::object>(object);  // Python code may drop it
  if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      append(PySequence_Fast_GET_ITEM(object, i), search, depth + 1);
    }
  } else if (PyDict_Check(object)) {
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(object, &position, &key, &value) != 0;) {
      append(value, search, depth + 1);
    }
  } else if (is_plain_leaf(object)) {
    return;
  } else if (is_tensor(object)) {
    search.append_tensor(object, search.tensors);
  } else {
    append_from_object(object, search, depth);
  }
}

/// False for code and for nn.Modules: an object that refers to a model does not carry its
/// parameters.
bool may_carry_tensors(PyObject* object) {
  if (PyType_Check(object) || PyModule_Check(object) || PyCallable_Check(object) != 0) return false;
  return !py::isinstance(object, py::module_::import("torch.nn").attr("Module"));
}

/// Reads `__dict__` and `__slots__`, but calls no property and no `__getattr__`.
void append_from_attributes(PyObject* object, Search& search, int depth) {
  if (!search.reads_attributes || search.objects.size() >= kMostObjects) return;
  if (!may_carry_tensors(object)) return;
  if (std::find(search.objects.begin(), search.objects.end(), object) != search.objects.end()) {
    return;
  }
  search.objects.push_back(object);
  if (PyObject* attributes = PyObject_GenericGetDict(object, nullptr)) {
    const auto held = py::reinterpret_steal<py::object>(attributes);
    if (PyDict_Check(attributes)) append(attributes, search, depth + 1);
  } else {
    PyErr_Clear();  // it has slots only
  }
  const py::handle type = py::type::handle_of(object);
  for (const py::handle name : py::module_::import("copyreg").attr("_slotnames")(type)) {
    const py::object value = py::getattr(object, name, py::none());
    append(value.ptr(), search, depth + 1);
  }
}

void append_from_object(PyObject* object, Search& search, int depth) {
  try {
    const auto pytree = py::module_::import("torch.utils._pytree");
    const auto supported = pytree.attr("SUPPORTED_NODES").cast<py::dict>();
    if (!supported.contains(py::type::handle_of(object))) {
      return append_from_attributes(object, search, depth);
    }
    for (const py::handle leaf : pytree.attr("tree_leaves")(py::handle(object))) {
      append(leaf.ptr(), search, depth + 1);
    }
  } catch (...) {
    note_exception(op_hook::failures(), "looking for tensors in an object");
  }
}

/// Guarded by the GIL.
std::vector<std::vector<at::Tensor>>& spare_lists() {
  static auto* lists = new std::vector<std::vector<at::Tensor>>;
  return *lists;
}

}  // namespace

ScratchTensors::ScratchTensors() {
  auto& spare = spare_lists();
  if (spare.empty()) return;
  tensors_ = std::move(spare.back());
  spare.pop_back();
}

ScratchTensors::~ScratchTensors() {
  tensors_.clear();
  spare_lists().push_back(std::move(tensors_));
}

bool is_tensor(PyObject* object) {
  auto* tensor_class = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  return tensor_class != nullptr && PyType_IsSubtype(Py_TYPE(object), tensor_class) != 0;
}

namespace {

void append_inner(PyObject* tensor, std::vector<at::Tensor>& tensors, int depth) {
  if (depth > kDeepest || !is_tensor(tensor)) return;
  const at::Tensor& own = THPVariable_Unpack(tensor);
  if (!own.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python) ||
      PyObject_HasAttrString(tensor, "__tensor_flatten__") == 0) {
    tensors.push_back(own);
    return;
  }
  try {
    const auto parts = py::handle(tensor).attr("__tensor_flatten__")().cast<py::tuple>();
    for (const py::handle name : parts[0]) {
      append_inner(py::getattr(py::handle(tensor), name).ptr(), tensors, depth + 1);
    }
  } catch (...) {
    note_exception(op_hook::failures(), "flattening a subclass of torch.Tensor");
  }
}

}  // namespace

void append_inner_tensors(PyObject* tensor, std::vector<at::Tensor>& tensors) {
  append_inner(tensor, tensors, 0);
}

void append_tensors(PyObject* object, std::vector<at::Tensor>& tensors) {
  constexpr auto append_itself = [](PyObject* tensor, std::vector<at::Tensor>& all) {
    all.push_back(THPVariable_Unpack(tensor));
  };
  Search search{append_itself, tensors, /*reads_attributes=*/false};
  append(object, search, 0);
}

void append_all_inner_tensors(PyObject* object, std::vector<at::Tensor>& tensors) {
  Search search{&append_inner_tensors, tensors, /*reads_attributes=*/true};
  append(object, search, 0);
}

}  // namespace tidegauge::bindings
