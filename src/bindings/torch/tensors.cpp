// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/tensors.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

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

using AppendTensor = void (*)(PyObject* tensor, std::vector<at::Tensor>& tensors);

/// For objects of other classes, which may be registered with pytree (dataclasses, key-value
/// caches).
void append_from_pytree(PyObject* object, AppendTensor append_tensor,
                        std::vector<at::Tensor>& tensors, int depth);

void append(PyObject* object, AppendTensor append_tensor, std::vector<at::Tensor>& tensors,
            int depth) {
  if (depth > kDeepest) return;
  const auto held = py::reinterpret_borrow<py::object>(object);  // Python code may drop it
  if (PyTuple_Check(object) || PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      append(PySequence_Fast_GET_ITEM(object, i), append_tensor, tensors, depth + 1);
    }
  } else if (PyDict_Check(object)) {
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(object, &position, &key, &value) != 0;) {
      append(value, append_tensor, tensors, depth + 1);
    }
  } else if (is_plain_leaf(object)) {
    return;
  } else if (is_tensor(object)) {
    append_tensor(object, tensors);
  } else {
    append_from_pytree(object, append_tensor, tensors, depth);
  }
}

void append_from_pytree(PyObject* object, AppendTensor append_tensor,
                        std::vector<at::Tensor>& tensors, int depth) {
  try {
    const auto pytree = py::module_::import("torch.utils._pytree");
    const auto supported = pytree.attr("SUPPORTED_NODES").cast<py::dict>();
    if (!supported.contains(py::type::handle_of(object))) return;
    for (const py::handle leaf : pytree.attr("tree_leaves")(py::handle(object))) {
      // Pytree has flattened all containers. Leaves of other classes have no tensors.
      if (is_tensor(leaf.ptr())) append(leaf.ptr(), append_tensor, tensors, depth + 1);
    }
  } catch (...) {
    note_exception(op_hook::failures(), "flattening an object that is registered with pytree");
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
  append(object, append_itself, tensors, 0);
}

void append_all_inner_tensors(PyObject* object, std::vector<at::Tensor>& tensors) {
  append(object, &append_inner_tensors, tensors, 0);
}

}  // namespace tidegauge::bindings
