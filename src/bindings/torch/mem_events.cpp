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
#include <deque>
#include <optional>

#include "bindings/torch/py_mem_tracker.h"
#include "bindings/torch/py_module_view.h"
#include "bindings/torch/tensors.h"
#include "capture/compat/dispatch_key.h"
#include "capture/hooks/compiled_region.h"
#include "capture/hooks/fake_hook.h"
#include "capture/hooks/fast_switch.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/unseen_changes.h"
#include "simulate/session.h"
#include "tidegauge/threads.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// For a hook that belongs to no tracker.
template <typename Body>
void contain_op(const char* where, Body&& body) noexcept {
  contain_python(op_hook::failures(), where, body);
}

void optimizer_step_begin(py::handle optimizer) {
  moment::begin_optimizer_step();
  for (const auto& tracker : all_started()) {
    tracker->observer().begin_optimizer_step([&] { return class_name(optimizer); });
  }
}

void optimizer_step_end(py::handle optimizer) {
  for (const auto& tracker : all_started()) {
    tracker->observer().end_optimizer_step(
        [&] { tracker->track_optimizer(optimizer, LabelledBy::Hook); });
  }
  moment::end_optimizer_step();
}

void begin_compiled_code() {
  for (const auto& tracker : all_started()) tracker->begin_compiled_code();
}

void end_compiled_code() {
  for (const auto& tracker : all_started()) tracker->end_compiled_code();
}

/// A context manager with the arguments of torch's guard. It is native, because dynamo would try to
/// compile a Python function.
class CompiledCall {
 public:
  CompiledCall(c10::DispatchKeySet included, c10::DispatchKeySet excluded)
      : region_(!simulation::is_on()), included_(included), excluded_(excluded) {}
  void enter() {
    begin_compiled_code();
    region_.enter(included_, excluded_);
  }
  void exit(const py::args&) {
    region_.leave();
    end_compiled_code();
  }

 private:
  CompiledRegion region_;
  const c10::DispatchKeySet included_, excluded_;
};

/// The compiled calls that are running in this thread. A function of its own, because each thread
/// initializes its copy when it passes the declaration.
std::deque<CompiledRegion>& compiled_regions() {
  static thread_local std::deque<CompiledRegion> regions;
  return regions;
}

/// For a torch that calls two functions around compiled code instead of a guard: native wrappers of
/// both.
py::tuple wrap_compiled_calls(const py::object& save, const py::object& restore) {
  const auto enter = [save] {
    py::object saved = save();
    begin_compiled_code();
    compiled_regions().emplace_back(!simulation::is_on()).enter();
    return saved;
  };
  const auto leave = [restore](const py::args& saved) {
    if (!compiled_regions().empty()) {  // else the tracker was entered within the call
      compiled_regions().back().leave();
      compiled_regions().pop_back();
      end_compiled_code();
    }
    return restore(*saved);
  };
  return py::make_tuple(py::cpp_function(enter), py::cpp_function(leave));
}

/// While it lives, memory that this thread allocates is not counted, simulated or not.
class UnseenRegion {
 public:
  void enter() { guard_.emplace(dispatch_key::kBoth); }
  void exit(const py::args&) { guard_.reset(); }

 private:
  std::optional<c10::impl::ExcludeDispatchKeyGuard> guard_;
};

}  // namespace

void bind_mem_events(py::module_& m) {
  py::class_<CompiledCall>(m, "CompiledCall")
      .def(py::init<c10::DispatchKeySet, c10::DispatchKeySet>(), py::arg("included"),
           py::arg("excluded"))
      .def("__enter__", &CompiledCall::enter)
      .def("__exit__", &CompiledCall::exit);
  py::class_<UnseenRegion>(m, "UnseenRegion")
      .def(py::init<>())
      .def("__enter__", &UnseenRegion::enter)
      .def("__exit__", &UnseenRegion::exit);
  m.def("wrap_compiled_calls", &wrap_compiled_calls, py::arg("save"), py::arg("restore"));
  m.def("optimizer_step_begin", &optimizer_step_begin, py::arg("optimizer"));
  m.def("optimizer_step_end", &optimizer_step_end, py::arg("optimizer"));
  m.def("begin_closure", &moment::begin_closure);
  m.def("end_closure", &moment::end_closure);
  m.def(
      "tensor_made",
      [](const py::handle tensor) {
        contain_op("a tensor", [&] {
          if (is_tensor(tensor.ptr())) observe_made(THPVariable_Unpack(tensor.ptr()));
        });
      },
      py::arg("tensor"));
  m.def(
      "gradients_made",
      [](const py::handle inputs, const py::handle grads) {
        notify_started("gradients", [&](PyMemTracker& tracker) {
          const py::tuple all = py::reinterpret_borrow<py::object>(inputs);
          const py::tuple found = py::reinterpret_borrow<py::object>(grads);
          for (size_t i = 0; i < std::min(all.size(), found.size()); ++i) {
            tracker.track_gradient(all[i], found[i]);
          }
        });
      },
      py::arg("inputs"), py::arg("grads"));
  m.def(
      "before_resize",
      [](py::handle storage) {
        contain_op("a storage that is resized", [&] {
          begin_resize(torch::createStorage(storage.ptr()).unsafeGetStorageImpl());
        });
      },
      py::arg("storage"));
  m.def(
      "after_resize",
      [](py::handle storage) {
        contain_op("a storage that was resized",
                   [&] { end_resize(torch::createStorage(storage.ptr()).unsafeGetStorageImpl()); });
      },
      py::arg("storage"));
  const auto registered = [](Role role) {
    return [role](py::handle module, py::handle, py::handle value) {
      if (value.is_none()) return;
      notify_started("a tensor that a module registers",
                     [&](PyMemTracker& tracker) { tracker.register_tensor(module, value, role); });
    };
  };
  m.def("enter_fake_mode",
        [] { contain_op("the begin of a FakeTensorMode", &fake_hook::enter_mode); });
  m.def(
      "hook_failed",
      [](py::handle where, py::handle error) {
        notify_started(text_of(where.ptr()).c_str(), [&](PyMemTracker&) {
          PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
          throw py::error_already_set();
        });
      },
      py::arg("where"), py::arg("error"), "Counts a failure of a hook that is written in Python.");
  m.def("dispatch_keys", [] {
    return std::array{c10::toString(dispatch_key::kOurs), c10::toString(dispatch_key::kCarried)};
  });
  m.def("set_fast_paths", &enable_fast_paths, py::arg("are_enabled"),
        "For tests. Returns False if the library has no fast paths.");
  m.def("attach_thread", &attach_thread);
  m.def("detach_thread", &detach_thread);
  m.def("watch_thread_again", [] { contain_op("a thread", &watch_thread_again); });
  m.def(
      "module_restored",
      [](py::handle module) {
        notify_started("a module that is copied or unpickled", [&](PyMemTracker& tracker) {
          tracker.track_module(module, LabelledBy::Hook);
        });
      },
      py::arg("module"));
  m.def("parameter_registered", registered(Role::IsParameter), py::arg("module"), py::arg("name"),
        py::arg("parameter"));
  m.def("buffer_registered", registered(Role::IsBuffer), py::arg("module"), py::arg("name"),
        py::arg("buffer"));
}

}  // namespace tidegauge::bindings
