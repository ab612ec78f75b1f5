// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <string>

#include "bindings/core/allocator.h"
#include "bindings/core/export.h"
#include "bindings/core/fit.h"
#include "bindings/core/plan.h"
#include "bindings/core/trace.h"
#include "core/util/byte_text.h"
#include "tidegauge/errors.h"
#include "trace/interrupts.h"

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
  } catch (const tidegauge::Interrupted&) {
    // PyErr_CheckSignals has set the error of the signal's handler.
    if (PyErr_Occurred() == nullptr) PyErr_SetNone(PyExc_KeyboardInterrupt);
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

/// An integer of Python that does not fit is rendered as the largest size that we count.
std::string render_bytes(const pybind11::int_& size_bytes) {
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(size_bytes.ptr(), &overflow);
  using Limits = std::numeric_limits<int64_t>;
  return tidegauge::render_bytes(overflow == 0  ? value
                                 : overflow > 0 ? Limits::max()
                                                : Limits::min());
}

bool has_signal() {
  const pybind11::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  // Serves `_C`, too.
  pybind11::register_exception_translator(&translate);
  tidegauge::trace::set_interrupt_check(&has_signal);
  m.doc() = "The native part of tidegauge that needs no torch. Private: use the tidegauge package.";
  m.def("render_bytes", &render_bytes, pybind11::arg("size_bytes"));
  pybind11::dict units;
  for (const tidegauge::ByteUnit& unit : tidegauge::kByteUnits) {
    units[pybind11::str(unit.name)] = unit.bytes;
  }
  m.attr("BYTE_UNITS") = units;
  tidegauge::bindings::bind_trace(m);
  tidegauge::bindings::bind_allocator(m);
  tidegauge::bindings::bind_fit(m);
  tidegauge::bindings::bind_plan(m);
  tidegauge::bindings::bind_export(m);
}
