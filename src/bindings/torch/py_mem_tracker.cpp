// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/py_mem_tracker.h"

#include <torch/csrc/autograd/python_variable.h>

#include <utility>

#include "bindings/common/snapshots.h"
#include "bindings/torch/py_module_registry.h"
#include "bindings/torch/py_module_view.h"
#include "bindings/torch/snapshots.h"
#include "bindings/torch/tensors.h"
#include "capture/compat/fake_mode.h"
#include "capture/hooks/moment_facts.h"
#include "tidegauge/errors.h"
#include "track/user_role.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// True if a leaf is an nn.Parameter. Called by autograd's threads.
bool is_parameter(const at::Tensor& leaf) {
  const py::gil_scoped_acquire gil;
  const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(leaf));
  return py::isinstance(object, py::module_::import("torch.nn").attr("Parameter"));
}

/// See fake_mode::mode_of.
const void* find_fake_mode(const at::Tensor& tensor) {
  const py::gil_scoped_acquire gil;
  const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  const auto fake_tensor = py::module_::import("torch._subclasses.fake_tensor").attr("FakeTensor");
  return py::isinstance(object, fake_tensor) ? object.attr("fake_mode").ptr() : nullptr;
}

std::vector<std::shared_ptr<PyMemTracker>>& started_trackers() {
  static auto* trackers = new std::vector<std::shared_ptr<PyMemTracker>>;
  return *trackers;
}

}  // namespace

std::vector<std::shared_ptr<PyMemTracker>> all_started() { return started_trackers(); }

std::shared_ptr<PyMemTracker> PyMemTracker::create(std::shared_ptr<PyModTracker> modules,
                                                   bool strict, bool allocator,
                                                   const std::string& stacks, bool is_sharded) {
  auto tracker = std::shared_ptr<PyMemTracker>(new PyMemTracker(
      std::move(modules), strict, allocator, parse_stack_mode(stacks, true), is_sharded));
  tracker->modules_->set_listener(tracker);
  return tracker;
}

PyMemTracker::PyMemTracker(std::shared_ptr<PyModTracker> modules, bool strict, bool allocator,
                           StackMode stacks, bool is_sharded)
    : modules_(std::move(modules)),
      observer_(modules_->activity(), py_modules(),
                {.strict = strict,
                 .has_allocator_channel = allocator,
                 .stack_mode = stacks,
                 .tracker_name = is_sharded ? "FSDPMemTracker" : "MemTracker",
                 .note_exception = &note_exception},
                &is_parameter),
      is_sharded_(is_sharded) {}

PyMemTracker::~PyMemTracker() = default;

void PyMemTracker::start() {
  engine().start();
  if (++start_count_ == 1) started_trackers().push_back(shared_from_this());
}

void PyMemTracker::stop() {
  if (start_count_ == 0) return;
  if (--start_count_ == 0) std::erase(started_trackers(), shared_from_this());
  engine().stop();
}

void PyMemTracker::label(py::handle object, Role role, Since since, LabelledBy labelled_by,
                         ModuleId owner) {
  ScratchTensors tensors;
  append_inner_tensors(object.ptr(), *tensors);
  for (const at::Tensor& tensor : *tensors) {
    engine().label(tensor, role, since, owner, labelled_by);
  }
}

void PyMemTracker::track_tensor(py::handle tensor, const std::string& role) {
  const UserRole parsed = parse_user_role(role);
  label(tensor, parsed.role, parsed.since, LabelledBy::User);
}

void PyMemTracker::register_tensor(py::handle module, py::handle tensor, Role role) {
  // A module under construction has no name yet. The trace will have the name that it gets later.
  const ModuleId owner =
      engine().is_recording() ? PyModuleRegistry::get().intern(module.ptr()) : ModuleId{};
  label(tensor, role, Since::Birth, LabelledBy::Hook, owner);
}

void PyMemTracker::track_module(py::handle module, LabelledBy labelled_by) {
  observer_.labels().label(engine(), PyModuleView(module), labelled_by);
}

void PyMemTracker::track_optimizer(py::handle optimizer, LabelledBy labelled_by) {
  engine().expect_optimizer();
  label_states(optimizer, labelled_by);
  compiled_steps_.add(optimizer);
}

void PyMemTracker::begin_compiled_code() {
  contain("compiled code", [&] { compiled_steps_.begin_call(); });
}

void PyMemTracker::end_compiled_code() {
  contain("an optimizer step in compiled code", [&] {
    for (const CompiledSteps::Step& step : compiled_steps_.end_call()) {
      if (step.is_new) observer_.begin_optimizer_step([&] { return class_name(step.optimizer); });
      label_states(step.optimizer, LabelledBy::Hook);
      if (step.is_new) observer_.end_optimizer_step([] {});
    }
  });
}

void PyMemTracker::label_states(py::handle optimizer, LabelledBy labelled_by) {
  const py::object state = py::getattr(optimizer, "state", py::dict());
  for (const py::handle item : py::list(state.attr("items")())) {
    const auto [parameter, of_parameter] = py::cast<std::pair<py::object, py::object>>(item);
    if (!PyDict_Check(of_parameter.ptr())) continue;
    const bool has_owner = engine().is_recording() && is_tensor(parameter.ptr());
    const ModuleId owner =
        has_owner ? PyModuleRegistry::get().intern_owner(THPVariable_Unpack(parameter.ptr()))
                  : ModuleId{};
    std::vector<at::Tensor> tensors;
    append_tensors(of_parameter.ptr(), tensors);
    for (const at::Tensor& tensor : tensors) {
      const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
      label(object, Role::IsOptimizerState, Since::Birth, labelled_by, owner);
    }
  }
}

void PyMemTracker::track_gradient(py::handle input, py::handle grad) {
  if (is_tensor(input.ptr()) && is_parameter(THPVariable_Unpack(input.ptr()))) {
    label(grad, Role::IsGradient, Since::Birth, LabelledBy::Hook);
  }
}

void PyMemTracker::on_enter(py::handle module, ModuleId id, bool is_root_call, py::handle args,
                            py::handle kwargs) {
  ScratchTensors inputs;
  try {
    observer_.begin_call(PyModuleView(module), id, is_root_call, moment::in_backward(), [&] {
      append_all_inner_tensors(args.ptr(), *inputs);
      append_all_inner_tensors(kwargs.ptr(), *inputs);
      return at::TensorList(*inputs);
    });
  } catch (const NotSupported& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what());
    throw py::error_already_set();
  }
}

void PyMemTracker::on_leave(ModuleId id, py::handle output) {
  ScratchTensors outputs;
  observer_.end_call(id, moment::in_backward(), [&] {
    append_all_inner_tensors(output.ptr(), *outputs);
    return at::TensorList(*outputs);
  });
}

void PyMemTracker::on_compiled(py::handle module, py::handle output) {
  ScratchTensors outputs;
  observer_.compiled_call(PyModuleView(module), [&] {
    append_all_inner_tensors(output.ptr(), *outputs);
    return at::TensorList(*outputs);
  });
}

PyMemTrackerClass bind_mem_tracker(py::module_& m) {
  fake_mode::connect_python(&find_fake_mode);
  PyMemTrackerClass tracker(m, "MemTracker",
                            "Bytes by device and category; see tidegauge.MemTracker.");
  tracker
      .def(py::init(&PyMemTracker::create), py::arg("mod_tracker"), py::arg("strict"),
           py::arg("allocator") = false, py::arg("stacks") = "none", py::arg("is_sharded") = false)
      .def(
          "record_to",
          [](PyMemTracker& self, std::shared_ptr<Recorder> recorder) {
            self.engine().record_to(std::move(recorder));
          },
          py::arg("recorder"))
      .def("start", &PyMemTracker::start)
      .def("stop", &PyMemTracker::stop)
      .def_property_readonly("is_started", &PyMemTracker::is_started)
      .def("track_tensor", &PyMemTracker::track_tensor, py::arg("tensor"), py::arg("role"))
      .def(
          "track_module",
          [](PyMemTracker& self, py::handle module) {
            self.track_module(module, LabelledBy::User);
          },
          py::arg("module"))
      .def(
          "track_optimizer",
          [](PyMemTracker& self, py::handle optimizer) {
            self.track_optimizer(optimizer, LabelledBy::User);
          },
          py::arg("optimizer"))
      .def("reset_module_stats", [](PyMemTracker& self) { self.observer().reset_module_stats(); })
      .def("post_mortem", [](PyMemTracker& self) { return self.engine().post_mortem(); })
      .def("current", [](PyMemTracker& self) { return self.snapshot(/*at_peak=*/false); })
      .def("peak", [](PyMemTracker& self) { return self.snapshot(/*at_peak=*/true); })
      .def("foreign", [](PyMemTracker& self) { return to_python(self.engine().foreign_bytes()); })
      .def(
          "splits",
          [](PyMemTracker& self, bool at_peak) {
            return to_splits(at_peak ? self.engine().peak() : self.engine().current());
          },
          py::arg("at_peak"))
      .def("restart_peak", [](PyMemTracker& self) { self.engine().restart_peak(); })
      .def("modules", &PyMemTracker::modules)
      .def("module_stats", &PyMemTracker::module_stats, py::arg("module"))
      .def_property_readonly("version", [](PyMemTracker& self) { return self.engine().version(); })
      .def("in_optimizer_step", [](PyMemTracker&) { return moment::in_optimizer_step(); })
      .def("in_recompute", [](PyMemTracker&) { return moment::in_recompute(); })
      .def("anomalies",
           [](PyMemTracker& self) {
             return std::make_pair(self.engine().anomaly_count(), self.engine().first_anomaly());
           })
      .def_property_readonly("footprint_bytes",
                             [](PyMemTracker& self) { return self.engine().footprint_bytes(); });
  return tracker;
}

}  // namespace tidegauge::bindings
