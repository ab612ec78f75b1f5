// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/entering.h"

#include <mutex>
#include <optional>

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using Error = std::optional<py::error_already_set>;

/// Calls `body` until an interrupt no longer ends it; an ordinary exception may end it once.
/// Returns the first exception.
template <typename Body>
Error finish(Body&& body) {
  constexpr int kMostInterrupts = 1000;
  Error first;
  int failures = 0;
  for (int i = 0; i < kMostInterrupts && failures < 2; ++i) {
    try {
      body();
      return first;
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_Exception)) ++failures;
      if (!first) first = error;
    }
  }
  return first;
}

Error set_depth(const py::object& self, int depth) {
  return finish([&] { self.attr("_set_depth")(depth); });
}

py::object enter(const py::object& self) {
  const int depth = self.attr("_depth").cast<int>();
  try {
    self.attr("_set_depth")(depth + 1);
  } catch (py::error_already_set&) {
    set_depth(self, depth);
    throw;
  }
  return self;
}

void exit(const py::object& self, const py::args&) {
  int depth = 0;
  Error first = finish([&] { depth = self.attr("_depth_after_exit")().cast<int>(); });
  if (first && first->matches(PyExc_Exception)) throw py::error_already_set(*first);
  const Error second = set_depth(self, depth);
  if (!first) first = second;
  if (first) throw py::error_already_set(*first);
}

/// Not a lock of Python's: an exception between two bytecodes could leave that one locked.
py::object run_locked(const py::function& body) {
  static auto* mutex = new std::recursive_mutex;
  std::unique_lock lock(*mutex, std::try_to_lock);
  if (!lock) {
    const py::gil_scoped_release without_gil;
    lock.lock();
  }
  return body();
}

/// A function that becomes a method when a class has it as an attribute.
template <typename Function>
void define_method(py::module_& m, const char* name, Function function, const char* doc) {
  const py::cpp_function made(function, py::name(name), py::doc(doc));
  m.attr(name) = py::reinterpret_steal<py::object>(PyInstanceMethod_New(made.ptr()));
}

}  // namespace

void bind_entering(py::module_& m) {
  define_method(m, "enter", &enter, "An `__enter__` that an interrupt undoes.");
  define_method(m, "exit", &exit, "An `__exit__` that an interrupt cannot stop.");
  m.def("run_locked", &run_locked, py::arg("body"), "Calls `body` in one thread at a time.");
}

}  // namespace tidegauge::bindings
