// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/pybind11.h>

#include "bindings/core/allocator.h"
#include "bindings/core/export.h"
#include "bindings/core/fit.h"
#include "bindings/core/trace.h"
#include "tidegauge/errors.h"

namespace {

/// Raises an error class of tidegauge.errors. That module is plain Python, so that it can be
/// imported without the extension.
void raise(const char* name, const tidegauge::Error& error) {
  const auto type = pybind11::module_::import("tidegauge.errors").attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

void translate(std::exception_ptr pointer) {
  try {
    std::rethrow_exception(std::move(pointer));
  } catch (const tidegauge::FormatError& error) {
    raise("FormatError", error);
  } catch (const tidegauge::IoError& error) {
    raise("IoError", error);
  } catch (const tidegauge::UsageError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const tidegauge::NotSupported& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what());
  }
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  // Serves `_C`, too.
  pybind11::register_exception_translator(&translate);
  m.doc() = "The native part of tidegauge that needs no torch. Private: use the tidegauge package.";
  tidegauge::bindings::bind_trace(m);
  tidegauge::bindings::bind_allocator(m);
  tidegauge::bindings::bind_fit(m);
  tidegauge::bindings::bind_export(m);
}
