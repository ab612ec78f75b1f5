// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/mod_tracker.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "bindings/module_registry.h"
#include "bindings/tensors.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// All trackers that are alive, to be told of modules that die.
std::vector<ModTracker*>& living_trackers() {
  static auto* trackers = new std::vector<ModTracker*>;
  return *trackers;
}

py::object wrap(const at::Tensor& tensor) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}

struct NamedChild {
  std::string name;
  py::object module;
};

/// Each child once, under its first name. By identity: `named_children` would leave out the second
/// of two children that compare equal.
std::vector<NamedChild> children_of(py::handle module) {
  std::vector<NamedChild> children;
  std::unordered_set<PyObject*> listed{Py_None};
  for (const py::handle item : module.attr("_modules").attr("items")()) {
    const auto pair = item.cast<py::tuple>();
    const py::object child = pair[1];
    if (!listed.insert(child.ptr()).second) continue;
    children.push_back({pair[0].cast<std::string>(), child});
  }
  return children;
}

bool is_bw() { return torch::autograd::get_current_graph_task_id() != -1; }

void warn_of_recursion() {
  constexpr const char* kText =
      "The module hierarchy tracking maybe be messed up."
      " Please file a bug to PyTorch, if it is the case.";
  if (PyErr_WarnEx(PyExc_UserWarning, kText, 2) != 0) throw py::error_already_set();
}

}  // namespace

struct ModTracker::UserHooks {
  py::object pre_fw, post_fw, pre_bw, post_bw;

  /// Engine threads may drop the last reference, without the GIL or after the interpreter is gone.
  static void destroy(UserHooks* hooks) {
    if (Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    delete hooks;
  }
};

ModTracker::ModTracker()
    : activity_(ModuleActivity::create([](const at::Tensor& parameter) {
        const py::gil_scoped_acquire gil;
        return ModuleRegistry::get().find_owner(parameter);
      })) {
  set_user_hooks(py::none(), py::none(), py::none(), py::none());
  ModuleRegistry::get().on_death = [](ModuleId id) {
    for (ModTracker* tracker : living_trackers()) {
      tracker->activity_->mark_dead(id);
      if (const auto listener = tracker->listener_.lock()) listener->on_death(id);
    }
  };
  living_trackers().push_back(this);
}

ModTracker::~ModTracker() { std::erase(living_trackers(), this); }

void ModTracker::set_user_hooks(py::object pre_fw, py::object post_fw, py::object pre_bw,
                                py::object post_bw) {
  auto hooks = std::shared_ptr<UserHooks>(
      new UserHooks{std::move(pre_fw), std::move(post_fw), std::move(pre_bw), std::move(post_bw)},
      &UserHooks::destroy);
  BackwardHooks backward;
  if (!hooks->pre_bw.is_none()) {
    backward.begin = [hooks](ModuleId id, const at::Tensor& grad) {
      const py::gil_scoped_acquire gil;
      hooks->pre_bw(ModuleRegistry::get().resolve(id), py::make_tuple(wrap(grad)));
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
      hooks->post_bw(ModuleRegistry::get().resolve(id), args);
    };
  }
  hooks_ = std::move(hooks);
  activity_->set_backward_hooks(std::move(backward));
}

void ModTracker::enter_module(py::handle module, py::handle args, py::handle kwargs) {
  const ModuleId id = ModuleRegistry::get().intern(module.ptr());
  std::vector<at::Tensor> inputs;
  if (activity_->has_backward_hooks()) {
    append_tensors(args.ptr(), inputs);
    append_tensors(kwargs.ptr(), inputs);
  }
  ModuleActivity::Entered entered = activity_->enter(id, inputs);
  if (!entered.is_named) {
    if (!find_below_active(module, id)) name_module(module);
    entered = activity_->enter(id, inputs);
  }
  try {
    if (entered.was_open && !is_bw()) warn_of_recursion();
    if (const auto listener = listener_.lock()) {
      listener->on_enter(module, id, entered.is_root_call, args, kwargs);
    }
    if (hooks_->pre_fw.is_none()) return;
    const auto hooks = hooks_;  // the hook may replace itself
    hooks->pre_fw(module, args);
  } catch (...) {
    leave(id, py::none(), {});
    throw;
  }
}

void ModTracker::leave(ModuleId id, py::handle output, const std::vector<at::Tensor>& outputs) {
  if (const auto listener = listener_.lock()) listener->on_leave(id, output);
  activity_->leave(id, outputs);
}

bool ModTracker::leave_module(py::handle module, py::handle args, py::handle output) {
  const ModuleId id = ModuleRegistry::get().find(module.ptr());
  const ModuleActivity::Open open = activity_->before_leave(id);
  if (!open.is_open) return false;
  std::vector<at::Tensor> outputs;
  if (open.wants_outputs) append_tensors(output.ptr(), outputs);
  if (!hooks_->post_fw.is_none()) {
    try {
      const auto hooks = hooks_;
      hooks->post_fw(module, args, output);
    } catch (...) {
      leave(id, output, outputs);
      throw;
    }
  }
  leave(id, output, outputs);
  return true;
}

std::string ModTracker::name_module(py::handle module) {
  const ModuleId id = ModuleRegistry::get().intern(module.ptr());
  if (!activity_->knows(id)) {
    activity_->name_root(id, py::type::of(module).attr("__name__").cast<std::string>());
    std::vector<ModuleId> path;
    name_children(module, id, path);
  }
  return activity_->name(id);
}

void ModTracker::name_children(py::handle module, ModuleId id, std::vector<ModuleId>& path) {
  if (std::find(path.begin(), path.end(), id) != path.end()) return;  // a module below itself
  path.push_back(id);
  for (const auto& [name, child] : children_of(module)) {
    const ModuleId child_id = ModuleRegistry::get().intern(child.ptr());
    activity_->name_child(child_id, id, name);
    name_children(child, child_id, path);
  }
  path.pop_back();
}

bool ModTracker::find_below_active(py::handle module, ModuleId id) {
  std::vector<ModuleId> active = activity_->active();
  for (auto above = active.rbegin(); above != active.rend(); ++above) {
    const py::object parent = ModuleRegistry::get().resolve(*above);
    if (parent.is_none()) continue;
    for (const auto& [name, child] : children_of(parent)) {
      if (!child.is(module)) continue;
      std::vector<ModuleId> path;
      name_children(parent, *above, path);
      return activity_->knows(id);
    }
  }
  return false;
}

py::object ModTracker::find_name(py::handle module) const {
  const ModuleId id = ModuleRegistry::get().find(module.ptr());
  if (!id || !activity_->knows(id)) return py::none();
  return py::str(activity_->name(id));
}

std::vector<std::string> ModTracker::active_names() {
  std::vector<std::string> names;
  for (const ModuleId id : activity_->active()) names.push_back(activity_->name(id));
  return names;
}

void ModTracker::run_within(py::handle module, const py::function& body) {
  activity_->run_within(ModuleRegistry::get().find(module.ptr()), [&] { body(); });
}

int ModTracker::traverse(visitproc visit, void* arg) const {
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
    return py::handle(self).cast<const ModTracker&>().traverse(visit, arg);
  };
  type.tp_clear = [](PyObject* self) {
    if (!py::detail::is_holder_constructed(self)) return 0;
    py::handle(self).cast<ModTracker&>().set_user_hooks(py::none(), py::none(), py::none(),
                                                        py::none());
    return 0;
  };
}

}  // namespace

void bind_mod_tracker(py::module_& m) {
  py::class_<ModTracker, std::shared_ptr<ModTracker>>(
      m, "ModTracker", py::custom_type_setup(&make_collectable),
      "Names and activity of modules; see tidegauge.ModTracker.")
      .def(py::init<>())
      .def("set_user_hooks", &ModTracker::set_user_hooks, py::arg("pre_fw"), py::arg("post_fw"),
           py::arg("pre_bw"), py::arg("post_bw"))
      .def("enter_module", &ModTracker::enter_module, py::arg("module"), py::arg("args"),
           py::arg("kwargs"))
      .def("leave_module", &ModTracker::leave_module, py::arg("module"), py::arg("args"),
           py::arg("output"))
      .def("name_module", &ModTracker::name_module, py::arg("module"))
      .def("find_name", &ModTracker::find_name, py::arg("module"))
      .def("active_names", &ModTracker::active_names)
      .def("run_within", &ModTracker::run_within, py::arg("module"), py::arg("body"))
      .def("stop", [](ModTracker& self) { self.activity()->stop(); })
      .def_property_readonly("failure_count",
                             [](ModTracker& self) { return self.activity()->failure_count(); })
      .def_property_readonly("first_failure",
                             [](ModTracker& self) { return self.activity()->first_failure(); });
}

}  // namespace tidegauge::bindings
