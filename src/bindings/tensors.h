// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <vector>

namespace tidegauge::bindings {

/// Appends the tensors in a Python object: a tensor, containers of them at any depth, and whatever
/// torch's pytree has been taught. Needs the GIL; never raises.
void append_tensors(PyObject* object, std::vector<at::Tensor>& tensors);

/// Appends the tensors that hold the memory of a tensor: itself, or the parts of a wrapper
/// subclass (`__tensor_flatten__`) at any depth. Needs the GIL; never raises.
void append_inner_tensors(PyObject* tensor, std::vector<at::Tensor>& tensors);

}  // namespace tidegauge::bindings
