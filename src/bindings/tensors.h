// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <vector>

namespace tidegauge::bindings {

/// Appends the tensors in a Python object: a tensor, containers of them at any depth, and whatever
/// torch's pytree has been taught. Needs the GIL; never raises.
void append_tensors(PyObject* object, std::vector<at::Tensor>& tensors);

}  // namespace tidegauge::bindings
