// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/containment.h"

#include <exception>

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// "ValueError: text", or the class alone if the text cannot be read. Unlike `what()`, it does not
/// try to print the exception of a `__str__` that raises, which may raise again for ever.
std::string describe(const py::error_already_set& error) {
  const auto* type = reinterpret_cast<const PyTypeObject*>(error.type().ptr());
  const auto text = py::reinterpret_steal<py::object>(PyObject_Str(error.value().ptr()));
  if (!text) PyErr_Clear();
  return text ? std::string(type->tp_name) + ": " + text_of(text.ptr()) : type->tp_name;
}

void note(Failures& failures, std::string_view where, const py::error_already_set& error) {
  if (error.matches(PyExc_KeyboardInterrupt)) {
    PyErr_SetInterrupt();
  } else {
    failures.note(where, describe(error));
  }
}

}  // namespace

void note_exception(Failures& failures, std::string_view where) noexcept {
  try {
    try {
      throw;
    } catch (py::error_already_set& error) {
      note(failures, where, error);
    } catch (const std::exception& error) {
      // torch's python_error leaves the error with the interpreter.
      if (PyErr_Occurred() != nullptr) {
        note(failures, where, py::error_already_set());
      } else {
        failures.note(where, error.what());
      }
    }
  } catch (...) {
    failures.note(where, "an unknown exception");
  }
}

std::string text_of(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return "?";
  Py_ssize_t size = 0;
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size)) {
    return {utf8, static_cast<size_t>(size)};
  }
  PyErr_Clear();  // it has lone surrogates
  const auto bytes = py::reinterpret_steal<py::bytes>(
      PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace"));
  if (bytes) return std::string(bytes);
  PyErr_Clear();
  return "?";
}

}  // namespace tidegauge::bindings
