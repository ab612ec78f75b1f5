// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <vector>

namespace tidegauge::bindings {

/// True for a tensor and for an object of a subclass. Unlike THPVariable_Check, it runs no Python
/// code, and an object that only claims to be a tensor (`__class__`) is none.
bool is_tensor(PyObject* object);

/// Appends the tensors in a Python object: a tensor, a container of tensors at any depth, or an
/// object of a class that is registered with torch's pytree. Needs the GIL; never raises.
void append_tensors(PyObject* object, std::vector<at::Tensor>& tensors);

/// Appends the tensors that hold the memory of a tensor: the tensor itself, or the parts of a
/// wrapper subclass (`__tensor_flatten__`) at any depth. Needs the GIL; never raises. A subclass
/// that cannot be flattened is a failure (op_hook::failures), and its memory is not counted.
void append_inner_tensors(PyObject* tensor, std::vector<at::Tensor>& tensors);

/// Combines both: the tensors that hold the memory of all tensors in an object. Also looks into the
/// attributes of objects that pytree does not know (dataclasses, plain objects), but not into
/// modules and functions.
void append_all_inner_tensors(PyObject* object, std::vector<at::Tensor>& tensors);

/// A list of tensors that reuses the memory of earlier lists. Nests. Needs the GIL.
class ScratchTensors {
 public:
  ScratchTensors();
  ~ScratchTensors();
  ScratchTensors(const ScratchTensors&) = delete;
  ScratchTensors& operator=(const ScratchTensors&) = delete;

  std::vector<at::Tensor>& operator*() { return tensors_; }

 private:
  std::vector<at::Tensor> tensors_;
};

}  // namespace tidegauge::bindings
