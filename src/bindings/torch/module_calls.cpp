// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that the patched nn.Module.__call__ and checkpoints call, for all entered trackers.
// They are plain C functions, because a pybind11 call would cost more than all the work here.
#include "bindings/torch/module_calls.h"

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/torch/containment.h"
#include "bindings/torch/py_mod_tracker.h"
#include "capture/compat/compiled_module.h"
#include "capture/hooks/moment_facts.h"
#include "capture/modules/compiled_calls.h"
#include "track/entered_trackers.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using Trackers = EnteredTrackers<PyModTracker>::List;

EnteredTrackers<PyModTracker>& entered() {
  static auto* trackers = new EnteredTrackers<PyModTracker>;
  return *trackers;
}

void notify_compiled(PyObject* module, PyObject* output) {
  const std::shared_ptr<const Trackers> trackers = entered().all();
  for (const auto& tracker : *trackers) {
    if (const auto listener = tracker->listener()) listener->on_compiled(module, output);
  }
}

bool is_compiled(PyObject* module) { return is_compiled_module_class(Py_TYPE(module)->tp_name); }

/// module_enter(module, args, kwargs) -> True if module_leave must follow.
PyObject* module_enter(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 3) return PyErr_Format(PyExc_TypeError, "module_enter takes 3 arguments");
  if (is_compiled(args[0])) {
    compiled_calls::begin();
    Py_RETURN_TRUE;
  }
  const std::shared_ptr<const Trackers> trackers = entered().all();
  if (compiled_calls::is_running() || trackers->empty()) Py_RETURN_FALSE;
  for (size_t done = 0; done < trackers->size(); ++done) {
    PyModTracker& tracker = *(*trackers)[done];
    try {
      tracker.enter_module(args[0], args[1], args[2]);
    } catch (py::error_already_set& error) {  // of a hook or a rule that the user has set
      // No module_leave will follow, so leave the module in the trackers that have entered it.
      for (size_t i = 0; i < done; ++i) (*trackers)[i]->leave_module(args[0], args[1], py::none());
      error.restore();
      return nullptr;
    } catch (...) {
      note_exception(tracker.activity()->failures(), "the begin of a module call");
    }
  }
  Py_RETURN_TRUE;
}

/// module_leave(module, args, output): output is None if the forward raised.
PyObject* module_leave(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 3) return PyErr_Format(PyExc_TypeError, "module_leave takes 3 arguments");
  if (is_compiled(args[0])) {
    compiled_calls::end();
    notify_compiled(args[0], args[2]);
    Py_RETURN_NONE;
  }
  const std::shared_ptr<const Trackers> trackers = entered().all();
  bool failed = false;
  for (auto tracker = trackers->rbegin(); tracker != trackers->rend(); ++tracker) {
    try {
      (*tracker)->leave_module(args[0], args[1], args[2]);
    } catch (py::error_already_set& error) {  // of a hook of the user
      error.restore();
      failed = true;
    } catch (...) {
      note_exception((*tracker)->activity()->failures(), "the end of a module call");
    }
  }
  if (failed) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"module_enter", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&module_enter)),
     METH_FASTCALL, "Begins a module call: module_enter(module, args, kwargs) -> bool."},
    {"module_leave", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&module_leave)),
     METH_FASTCALL, "Ends a module call: module_leave(module, args, output)."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void bind_module_calls(py::module_& m) {
  PyModule_AddFunctions(m.ptr(), functions);
  m.def(
      "start_tracking",
      [](const std::shared_ptr<PyModTracker>& tracker) { entered().add(tracker); },
      py::arg("tracker"), "Has no further effect if the tracker is entered already.");
  m.def(
      "stop_tracking",
      [](const std::shared_ptr<PyModTracker>& tracker) {
        entered().remove(*tracker);
        tracker->activity()->stop();
      },
      py::arg("tracker"));
  m.def(
      "compiled_module_called",
      [](py::handle module, py::handle output) { notify_compiled(module.ptr(), output.ptr()); },
      py::arg("module"), py::arg("output"));
  m.def(
      "begin_recompute",
      [](bool keeps_graph) {
        moment::begin_recompute(keeps_graph);
        const std::shared_ptr<const Trackers> trackers = entered().all();
        for (const auto& tracker : *trackers) {
          if (const auto listener = tracker->listener()) listener->on_recompute();
          contain_python(tracker->activity()->failures(), "the begin of a recompute",
                         [&] { tracker->activity()->begin_recompute(keeps_graph); });
        }
      },
      py::arg("keeps_graph"));
  m.def("end_recompute", [] {
    const std::shared_ptr<const Trackers> trackers = entered().all();
    for (const auto& tracker : *trackers) {
      contain_python(tracker->activity()->failures(), "the end of a recompute",
                     [&] { tracker->activity()->end_recompute(); });
    }
    moment::end_recompute();
  });
}

}  // namespace tidegauge::bindings
