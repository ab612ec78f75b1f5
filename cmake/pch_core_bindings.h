// SPDX-License-Identifier: BSD-3-Clause
// Precompiled for all files of the Python extension that needs no torch.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
