// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that the patches of torch's Python call to notify all started trackers.
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/stl.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "bindings/torch/py_mem_tracker.h"
#include "bindings/torch/py_module_view.h"
#include "capture/compat/dispatch_key.h"
#include "capture/hooks/fake_hook.h"
#include "capture/hooks/fast_switch.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_hook.h"
#include "capture/hooks/unseen_changes.h"
#include "simulate/session.h"
#include "tidegauge/threads.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

void optimizer_step_begin(py::handle optimizer) {
  moment::begin_optimizer_step();
  for (const auto& tracker : all_started()) {
    MemoryTracker& memory = tracker->memory();
    if (memory.is_recording()) memory.count_optimizer_step(class_name(optimizer));
    memory.optimizer_step(true);
  }
}

void optimizer_step_end(py::handle optimizer) {
  for (const auto& tracker : all_started()) {
    tracker->track_optimizer(optimizer, LabelledBy::Hook);
    tracker->memory().optimizer_step(false);
  }
  moment::end_optimizer_step();
}

/// Replaces torch's guard with the same arguments around each call of compiled code. The guards of
/// dynamo check the dispatch keys of the thread, so our key must be off; otherwise dynamo compiles
/// the model again. This is C++, because dynamo would try to compile a Python function. In a
/// simulation our key stays on, because the tensors of compiled code have no memory either.
class CompiledRegion {
 public:
  CompiledRegion(c10::DispatchKeySet included, c10::DispatchKeySet excluded)
      : hides_(!simulation::is_on()),
        included_(hides_ ? included.remove(dispatch_key::kOurs) : included),
        excluded_(excluded) {}
  void enter() {
    if (hides_) op_hook::suspend_in_this_thread();
    guard_.emplace(included_, excluded_);
  }
  void exit(const py::args&) {
    guard_.reset();
    if (hides_) op_hook::resume_in_this_thread();
  }

 private:
  const bool hides_;
  c10::DispatchKeySet included_, excluded_;
  std::optional<c10::impl::ForceDispatchKeyGuard> guard_;
};

/// The same for versions of torch that have no such guard, but call two functions, `save` and
/// `restore`, around compiled code: native functions that call these.
py::tuple wrap_compiled_calls(const py::object& save, const py::object& restore) {
  static thread_local std::vector<bool> hiding;
  const auto enter = [save] {
    py::object saved = save();
    hiding.push_back(!simulation::is_on());
    if (hiding.back()) {
      op_hook::suspend_in_this_thread();
      c10::impl::tls_set_dispatch_key_included(dispatch_key::kOurs, false);
    }
    return saved;
  };
  const auto leave = [restore](const py::args& saved) {
    if (!hiding.empty()) {  // else the tracker was entered within the call
      if (hiding.back()) op_hook::resume_in_this_thread();
      hiding.pop_back();
    }
    return restore(*saved);
  };
  return py::make_tuple(py::cpp_function(enter), py::cpp_function(leave));
}

/// Memory that this thread allocates while it lives does not belong to the program, simulated or
/// not.
class UnseenRegion {
 public:
  void enter() { guard_.emplace(dispatch_key::kBoth); }
  void exit(const py::args&) { guard_.reset(); }

 private:
  std::optional<c10::impl::ExcludeDispatchKeyGuard> guard_;
};

}  // namespace

void bind_mem_events(py::module_& m) {
  py::class_<CompiledRegion>(m, "CompiledRegion")
      .def(py::init<c10::DispatchKeySet, c10::DispatchKeySet>(), py::arg("included"),
           py::arg("excluded"))
      .def("__enter__", &CompiledRegion::enter)
      .def("__exit__", &CompiledRegion::exit);
  py::class_<UnseenRegion>(m, "UnseenRegion")
      .def(py::init<>())
      .def("__enter__", &UnseenRegion::enter)
      .def("__exit__", &UnseenRegion::exit);
  m.def("wrap_compiled_calls", &wrap_compiled_calls, py::arg("save"), py::arg("restore"));
  m.def("optimizer_step_begin", &optimizer_step_begin, py::arg("optimizer"));
  m.def("optimizer_step_end", &optimizer_step_end, py::arg("optimizer"));
  m.def(
      "tensor_made",
      [](const py::handle tensor) { observe_made(THPVariable_Unpack(tensor.ptr())); },
      py::arg("tensor"));
  m.def(
      "gradients_made",
      [](const py::sequence& inputs, const py::sequence& grads) {
        for (size_t i = 0; i < std::min(inputs.size(), grads.size()); ++i) {
          for (const auto& tracker : all_started()) tracker->track_gradient(inputs[i], grads[i]);
        }
      },
      py::arg("inputs"), py::arg("grads"));
  m.def(
      "before_resize",
      [](py::handle storage) {
        begin_resize(torch::createStorage(storage.ptr()).unsafeGetStorageImpl());
      },
      py::arg("storage"));
  m.def(
      "after_resize",
      [](py::handle storage) {
        end_resize(torch::createStorage(storage.ptr()).unsafeGetStorageImpl());
      },
      py::arg("storage"));
  const auto registered = [](Role role) {
    return [role](py::handle module, py::handle, py::handle value) {
      if (value.is_none()) return;
      for (const auto& tracker : all_started()) tracker->register_tensor(module, value, role);
    };
  };
  m.def("enter_fake_mode", &fake_hook::enter_mode);
  m.def("dispatch_keys", [] {
    return std::array{c10::toString(dispatch_key::kOurs), c10::toString(dispatch_key::kCarried)};
  });
  m.def("set_fast_paths", &enable_fast_paths, py::arg("are_enabled"),
        "For tests. Returns False if the library has no fast paths.");
  m.def("attach_thread", &attach_thread);
  m.def("detach_thread", &detach_thread);
  m.def("watch_thread_again", &watch_thread_again);
  m.def(
      "module_restored",
      [](py::handle module) {
        for (const auto& tracker : all_started()) tracker->track_module(module, LabelledBy::Hook);
      },
      py::arg("module"));
  m.def("parameter_registered", registered(Role::IsParameter), py::arg("module"), py::arg("name"),
        py::arg("parameter"));
  m.def("buffer_registered", registered(Role::IsBuffer), py::arg("module"), py::arg("name"),
        py::arg("buffer"));
}

}  // namespace tidegauge::bindings
