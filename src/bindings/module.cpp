// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/pybind11.h>

#include "bindings/allocator.h"
#include "bindings/export.h"
#include "bindings/fit.h"
#include "bindings/fsdp.h"
#include "bindings/memory_trace.h"
#include "bindings/module_calls.h"
#include "bindings/post_mortem.h"
#include "bindings/py_mem_tracker.h"
#include "bindings/py_mod_tracker.h"
#include "bindings/python_stack.h"
#include "bindings/simulate.h"
#include "bindings/trace.h"
#include "tidegauge/errors.h"

namespace {

/// An error of tidegauge.errors, which knows nothing of C++ so that it needs nothing compiled.
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

PYBIND11_MODULE(_C, m) {
  pybind11::register_exception_translator(&translate);
  m.doc() = "The native part of tidegauge. Private: use the tidegauge package.";
  tidegauge::bindings::bind_mod_tracker(m);
  tidegauge::bindings::bind_module_calls(m);
  tidegauge::bindings::bind_python_stack(m);
  tidegauge::bindings::bind_post_mortem(m);
  tidegauge::bindings::bind_trace(m);
  auto mem_tracker = tidegauge::bindings::bind_mem_tracker(m);
  tidegauge::bindings::bind_mem_events(m);
  tidegauge::bindings::bind_allocator(m);
  tidegauge::bindings::bind_fit(m);
  tidegauge::bindings::bind_memory_trace(m);
  tidegauge::bindings::bind_export(m);
  tidegauge::bindings::bind_fsdp(m);
  tidegauge::bindings::bind_units(mem_tracker);
  tidegauge::bindings::bind_simulate(m);
}
