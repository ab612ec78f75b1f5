// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/py_mod_tracker.h"

#include <torch/csrc/autograd/python_variable.h>

#include <utility>

#include "bindings/torch/containment.h"
#include "bindings/torch/py_module_registry.h"
#include "bindings/torch/py_module_view.h"
#include "bindings/torch/tensors.h"
#include "capture/hooks/moment_facts.h"
#include "capture/modules/module_call.h"
#include "capture/modules/module_naming.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// All living trackers. They are notified when a module is destroyed.
std::vector<PyModTracker*>& living_trackers() {
  static auto* trackers = new std::vector<PyModTracker*>;
  return *trackers;
}

py::object wrap(const at::Tensor& tensor) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}

/// Throws if the program has turned warnings into errors, as upstream does.
void warn_of_recursion() {
  constexpr const char* kText =
      "The module hierarchy tracking maybe be messed up."
      " Please file a bug to PyTorch, if it is the case.";
  if (PyErr_WarnEx(PyExc_UserWarning, kText, 2) != 0) throw py::error_already_set();
}

}  // namespace

struct PyModTracker::UserHooks {
  py::object pre_fw, post_fw, pre_bw, post_bw;

  /// Autograd's threads may drop the last reference without the GIL, or after the interpreter has
  /// ended.
  static void destroy(UserHooks* hooks) {
    if (Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    delete hooks;
  }
};

PyModTracker::PyModTracker()
    : activity_(ModuleActivity::create([](const at::Tensor& parameter) {
        const py::gil_scoped_acquire gil;
        return PyModuleRegistry::get().intern_owner(parameter);
      })) {
  set_user_hooks(py::none(), py::none(), py::none(), py::none());
  PyModuleRegistry::get().on_death = [](ModuleId id) {
    for (PyModTracker* tracker : living_trackers()) {
      tracker->activity_->mark_dead(id);
      if (const auto listener = tracker->listener_.lock()) listener->on_death(id);
    }
  };
  living_trackers().push_back(this);
}

PyModTracker::~PyModTracker() { std::erase(living_trackers(), this); }

void PyModTracker::set_user_hooks(py::object pre_fw, py::object post_fw, py::object pre_bw,
                                  py::object post_bw) {
  auto hooks = std::shared_ptr<UserHooks>(
      new UserHooks{std::move(pre_fw), std::move(post_fw), std::move(pre_bw), std::move(post_bw)},
      &UserHooks::destroy);
  BackwardHooks backward;
  if (!hooks->pre_bw.is_none()) {
    backward.begin = [hooks](ModuleId id, const at::Tensor& grad) {
      const py::gil_scoped_acquire gil;
      hooks->pre_bw(PyModuleRegistry::get().resolve(id), py::make_tuple(wrap(grad)));
    };
  }
  if (!hooks->post_bw.is_none()) {
    backward.end = [hooks](ModuleId id, const std::vector<at::Tensor>* grads) {
      const py::gil_scoped_acquire gil;
      py::tuple args;
      if (grads != nullptr) {
        py::list list;
        for (const at::Tensor& grad : *grads) list.append(wrap(grad));
        args = py::make_tuple(std::move(list));
      }
      hooks->post_bw(PyModuleRegistry::get().resolve(id), args);
    };
  }
  hooks_ = std::move(hooks);
  activity_->set_backward_hooks(std::move(backward));
}

void PyModTracker::name_called_module(py::handle module, ModuleId id) {
  Failures& failures = activity_->failures();
  const bool is_named = contain_python(failures, "naming a module", [&] {
    name_called(*activity_, py_modules(), PyModuleView(module), id);
  });
  if (!is_named) activity_->name_root(id, PyModuleView(module).root_name());
}

void PyModTracker::enter_module(py::handle module, py::handle args, py::handle kwargs) {
  const ModuleId id = PyModuleRegistry::get().intern(module.ptr());
  std::vector<at::Tensor> inputs;
  if (activity_->has_backward_hooks()) {
    append_tensors(args.ptr(), inputs);
    append_tensors(kwargs.ptr(), inputs);
  }
  begin_module_call(
      *activity_, id, inputs, [&] { name_called_module(module, id); },
      [&](const ModuleActivity::Entered& entered) {
        if (entered.was_open && warns_of_recursion && !moment::in_backward()) warn_of_recursion();
        if (const auto listener = listener_.lock()) {
          listener->on_enter(module, id, entered.is_root_call, args, kwargs);
        }
      },
      [&](const ModuleActivity::Entered&) { notify_leave(id, py::none()); },
      [&] {
        if (hooks_->pre_fw.is_none()) return;
        const auto hooks = hooks_;  // a copy, because a hook may replace the hooks
        hooks->pre_fw(module, args);
      });
}

void PyModTracker::notify_leave(ModuleId id, py::handle output) {
  if (const auto listener = listener_.lock()) listener->on_leave(id, output);
}

bool PyModTracker::leave_module(py::handle module, py::handle args, py::handle output) {
  const ModuleId id = PyModuleRegistry::get().find(module.ptr());
  const ModuleActivity::Open open = activity_->find_open_call(id);
  if (!open.is_open) return false;
  std::vector<at::Tensor> outputs;
  if (open.wants_outputs) append_tensors(output.ptr(), outputs);
  end_module_call(
      *activity_, id, outputs, [&] { notify_leave(id, output); },
      [&] {
        if (hooks_->post_fw.is_none()) return;
        const auto hooks = hooks_;
        hooks->post_fw(module, args, output);
      });
  return true;
}

std::string PyModTracker::name_module(py::handle module) {
  const PyModuleView view(module);
  const ModuleId id = view.intern();
  name_root(*activity_, view, id);
  return activity_->name(id);
}

py::object PyModTracker::find_name(py::handle module) const {
  const ModuleId id = PyModuleRegistry::get().find(module.ptr());
  if (!id || !activity_->knows(id)) return py::none();
  return py::str(activity_->name(id));
}

std::vector<std::string> PyModTracker::active_names() {
  std::vector<std::string> names;
  for (const ModuleId id : activity_->active()) names.push_back(activity_->name(id));
  return names;
}

void PyModTracker::run_within(py::handle module, const py::function& body) {
  activity_->run_within(PyModuleRegistry::get().find(module.ptr()), [&] { body(); });
}

int PyModTracker::traverse(visitproc visit, void* arg) const {
  Py_VISIT(hooks_->pre_fw.ptr());
  Py_VISIT(hooks_->post_fw.ptr());
  Py_VISIT(hooks_->pre_bw.ptr());
  Py_VISIT(hooks_->post_bw.ptr());
  return 0;
}

namespace {

void make_collectable(PyHeapTypeObject* heap_type) {
  PyTypeObject& type = heap_type->ht_type;
  type.tp_flags |= Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!py::detail::is_holder_constructed(self)) return 0;
    return py::handle(self).cast<const PyModTracker&>().traverse(visit, arg);
  };
  type.tp_clear = [](PyObject* self) {
    if (!py::detail::is_holder_constructed(self)) return 0;
    py::handle(self).cast<PyModTracker&>().set_user_hooks(py::none(), py::none(), py::none(),
                                                          py::none());
    return 0;
  };
}

}  // namespace

void bind_mod_tracker(py::module_& m) {
  py::class_<PyModTracker, std::shared_ptr<PyModTracker>>(
      m, "ModTracker", py::custom_type_setup(&make_collectable),
      "Names and activity of modules; see tidegauge.ModTracker.")
      .def(py::init<>())
      .def("set_user_hooks", &PyModTracker::set_user_hooks, py::arg("pre_fw"), py::arg("post_fw"),
           py::arg("pre_bw"), py::arg("post_bw"))
      .def("enter_module", &PyModTracker::enter_module, py::arg("module"), py::arg("args"),
           py::arg("kwargs"))
      .def("leave_module", &PyModTracker::leave_module, py::arg("module"), py::arg("args"),
           py::arg("output"))
      .def("name_module", &PyModTracker::name_module, py::arg("module"))
      .def("find_name", &PyModTracker::find_name, py::arg("module"))
      .def("active_names", &PyModTracker::active_names)
      .def("run_within", &PyModTracker::run_within, py::arg("module"), py::arg("body"))
      .def("stop", [](PyModTracker& self) { self.activity()->stop(); })
      .def_readwrite("warns_of_recursion", &PyModTracker::warns_of_recursion)
      .def_property_readonly("failure_count",
                             [](PyModTracker& self) { return self.activity()->failures().count(); })
      .def_property_readonly(
          "first_failure", [](PyModTracker& self) { return self.activity()->failures().first(); });
}

}  // namespace tidegauge::bindings
