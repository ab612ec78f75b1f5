// SPDX-License-Identifier: BSD-3-Clause
// Precompiled for all files of the Python extension that uses torch.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
