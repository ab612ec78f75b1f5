// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/mem_tracker.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "bindings/fsdp.h"
#include "bindings/module_registry.h"
#include "bindings/snapshots.h"
#include "bindings/tensors.h"
#include "capture/compat/fake_mode.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/unseen_changes.h"
#include "tidegauge/errors.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

bool is_bw() { return torch::autograd::get_current_graph_task_id() != -1; }

Phase current_phase() { return is_bw() ? Phase::Recompute : Phase::Forward; }

Role parse_role(const std::string& text) {
  static const std::unordered_map<std::string, Role> roles{
      {"parameter", Role::IsParameter}, {"buffer", Role::IsBuffer},
      {"gradient", Role::IsGradient},   {"optimizer_state", Role::IsOptimizerState},
      {"external", Role::IsExternal},   {"input", Role::IsInput},
  };
  const auto it = roles.find(text);
  if (it == roles.end()) {
    throw UsageError(
        "'" + text +
        "' is not a role; use parameter, buffer, gradient, optimizer_state, external or input");
  }
  return it->second;
}

/// Whether a leaf is an nn.Parameter; called by engine threads.
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

/// Calls `visit(tensor)`, or `visit(name, tensor)`, for one of a module's own dictionaries.
template <typename Visit>
void visit_own(py::handle module, PyObject* dictionary, Visit&& visit) {
  // Not by attribute: nn.Module has a __getattr__, which makes that three times as slow.
  PyObject** attributes = _PyObject_GetDictPtr(module.ptr());
  if (attributes == nullptr || *attributes == nullptr) return;
  const auto values =
      py::reinterpret_borrow<py::object>(PyDict_GetItemWithError(*attributes, dictionary));
  if (!values || !PyDict_Check(values.ptr())) return;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(values.ptr(), &position, &key, &value) != 0;) {
    if (value == Py_None) continue;
    if constexpr (std::is_invocable_v<Visit, py::handle, py::handle>) {
      visit(py::handle(key), py::handle(value));
    } else {
      visit(py::handle(value));
    }
  }
}

/// Interned once: making a string costs more than the look-up.
PyObject* parameters_name() {
  static PyObject* name = PyUnicode_InternFromString("_parameters");
  return name;
}
PyObject* buffers_name() {
  static PyObject* name = PyUnicode_InternFromString("_buffers");
  return name;
}
PyObject* modules_name() {
  static PyObject* name = PyUnicode_InternFromString("_modules");
  return name;
}

/// Calls `visit(module)` for a module and all below it, each once.
template <typename Visit>
void visit_modules(py::handle module, std::unordered_set<PyObject*>& seen, Visit&& visit) {
  if (!seen.insert(module.ptr()).second) return;
  visit(module);
  visit_own(module, modules_name(), [&](py::handle child) { visit_modules(child, seen, visit); });
}

std::vector<std::shared_ptr<MemTracker>>& started_trackers() {
  static auto* trackers = new std::vector<std::shared_ptr<MemTracker>>;
  return *trackers;
}

}  // namespace

std::string class_name(py::handle object) {
  const py::handle type(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  return py::cast<std::string>(type.attr("__module__")) + "." +
         py::cast<std::string>(type.attr("__qualname__"));
}

const std::vector<std::shared_ptr<MemTracker>>& all_started() { return started_trackers(); }

std::shared_ptr<MemTracker> MemTracker::create(std::shared_ptr<ModTracker> modules, bool strict,
                                               bool allocator, const std::string& stacks,
                                               bool is_sharded) {
  auto tracker = std::shared_ptr<MemTracker>(new MemTracker(
      std::move(modules), strict, allocator, parse_stack_mode(stacks, true), is_sharded));
  tracker->modules_->set_listener(tracker);
  return tracker;
}

MemTracker::MemTracker(std::shared_ptr<ModTracker> modules, bool strict, bool allocator,
                       StackMode stacks, bool is_sharded)
    : modules_(std::move(modules)),
      memory_(MemoryTracker::create(modules_->activity(), &is_parameter, allocator, stacks)),
      strict_(strict),
      is_sharded_(is_sharded) {}

MemTracker::~MemTracker() = default;

void MemTracker::record_to(const std::shared_ptr<Recorder>& recorder) {
  if (!recorder->reserve()) {
    throw UsageError("the recorder of " + recorder->path() +
                     " has a tracker already; give each tracker its own");
  }
  memory_->record_to(recorder);
}

void MemTracker::start() {
  memory_->start();
  if (++start_count_ == 1) started_trackers().push_back(shared_from_this());
}

void MemTracker::stop() {
  if (start_count_ == 0) return;
  if (--start_count_ == 0) std::erase(started_trackers(), shared_from_this());
  memory_->stop();
}

void MemTracker::label(py::handle object, Role role, Since since, NamedBy named_by,
                       ModuleId owner) {
  ScratchTensors tensors;
  append_inner_tensors(object.ptr(), *tensors);
  for (const at::Tensor& tensor : *tensors) {
    memory_->label(tensor, role, since, owner, named_by);
  }
}

void MemTracker::track_tensor(py::handle tensor, const std::string& role) {
  const Role parsed = parse_role(role);
  const bool is_told = parsed == Role::IsExternal || parsed == Role::IsInput;
  label(tensor, parsed, is_told ? Since::Now : Since::Birth, NamedBy::User);
}

void MemTracker::register_tensor(py::handle module, py::handle tensor, Role role) {
  // A module that is being made has no name yet, but what it registers is to bear it later.
  const ModuleId owner =
      memory_->is_recording() ? ModuleRegistry::get().intern(module.ptr()) : ModuleId{};
  label(tensor, role, Since::Birth, NamedBy::Hook, owner);
}

void MemTracker::label_own(py::handle module, ModuleId id, NamedBy named_by) {
  const auto label_as = [&](Role role) {
    return [this, id, role, named_by](py::handle name, py::handle value) {
      label(value, role, Since::Birth, named_by, id);
      if (!memory_->is_recording()) return;
      ScratchTensors tensors;
      append_inner_tensors(value.ptr(), *tensors);
      const auto text = py::str(name).cast<std::string>();
      for (const at::Tensor& tensor : *tensors) memory_->name_owned(tensor, id, text);
    };
  };
  visit_own(module, parameters_name(), label_as(Role::IsParameter));
  visit_own(module, buffers_name(), label_as(Role::IsBuffer));
}

void MemTracker::label_gradients(py::handle module, NamedBy named_by) {
  visit_own(module, parameters_name(), [&](py::handle value) {
    if (!THPVariable_Check(value.ptr())) return;
    at::Tensor grad = THPVariable_Unpack(value.ptr()).grad();
    if (!grad.defined()) return;
    if (grad.layout() == c10::kSparse) grad = grad._values();  // its indices may be the inputs
    const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(grad));
    label(object, gradient_role(value), Since::Birth, named_by);
  });
}

Role MemTracker::gradient_role(py::handle parameter) {
  if (unit_modules_.empty()) return Role::IsGradient;
  ScratchTensors tensors;
  append_inner_tensors(parameter.ptr(), *tensors);
  const bool is_shard = std::any_of((*tensors).begin(), (*tensors).end(), [&](const auto& tensor) {
    return memory_->find_category(tensor) == Category::ShardedParam;
  });
  return is_shard ? Role::IsShardedGrad : Role::IsGradient;
}

bool MemTracker::note_owned(py::handle module, ModuleId id) {
  owned_now_.clear();
  const auto read = [&](py::handle value) {
    const void* storage = nullptr;
    if (THPVariable_Check(value.ptr())) {
      const c10::TensorImpl* impl = THPVariable_Unpack(value.ptr()).unsafeGetTensorImpl();
      if (impl->has_storage()) storage = impl->unsafe_storage().unsafeGetStorageImpl();
    }
    owned_now_.push_back({value.ptr(), storage});
  };
  visit_own(module, parameters_name(), read);
  visit_own(module, buffers_name(), read);
  std::vector<Owned>& before = owned_[id];
  if (before == owned_now_) return false;
  before = owned_now_;
  return true;
}

void MemTracker::track_module(py::handle module, NamedBy named_by) {
  std::unordered_set<PyObject*> seen;
  visit_modules(module, seen, [&](py::handle each) {
    const ModuleId id = ModuleRegistry::get().intern(each.ptr());
    note_owned(each, id);
    label_own(each, id, named_by);
    label_gradients(each, named_by);
  });
}

void MemTracker::refresh_labels() {
  std::vector<ModuleId> known;
  known.reserve(owned_.size());
  for (const auto& [id, owned] : owned_) known.push_back(id);
  for (const ModuleId id : known) {
    const py::object module = ModuleRegistry::get().resolve(id);
    if (module.is_none()) continue;
    if (note_owned(module, id)) label_own(module, id, NamedBy::Hook);
    if (!memory_->has_backward_elsewhere()) label_gradients(module, NamedBy::Hook);
  }
}

void MemTracker::track_optimizer(py::handle optimizer, NamedBy named_by) {
  memory_->expect_optimizer();
  const py::object state = py::getattr(optimizer, "state", py::dict());
  for (const py::handle of_parameter : state.attr("values")()) {
    if (!PyDict_Check(of_parameter.ptr())) continue;
    std::vector<at::Tensor> tensors;
    append_tensors(of_parameter.ptr(), tensors);
    for (const at::Tensor& tensor : tensors) {
      const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
      label(object, Role::IsOptimizerState, Since::Birth, named_by);
    }
  }
}

void MemTracker::track_gradient(py::handle input, py::handle grad) {
  if (THPVariable_Check(input.ptr()) && is_parameter(THPVariable_Unpack(input.ptr()))) {
    label(grad, Role::IsGradient, Since::Birth, NamedBy::Hook);
  }
}

void MemTracker::reset_module_stats() {
  described_.clear();
  memory_->reset_statistics();
}

void MemTracker::describe(py::handle module, ModuleId id) {
  if (memory_->is_recording()) memory_->name_class(id, class_name(module));
  track_module(module, NamedBy::Hook);
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> buffers;
  std::unordered_set<PyObject*> seen;
  visit_modules(module, seen, [&](py::handle each) {
    visit_own(each, parameters_name(),
              [&](py::handle value) { append_inner_tensors(value.ptr(), parameters); });
    visit_own(each, buffers_name(),
              [&](py::handle value) { append_inner_tensors(value.ptr(), buffers); });
  });
  memory_->set_module_size(id, SizeOf::Parameters, memory_->known_bytes(parameters));
  memory_->set_module_size(id, SizeOf::Buffers, memory_->known_bytes(buffers));
}

void MemTracker::on_enter(py::handle module, ModuleId id, bool is_root_call, py::handle args,
                          py::handle kwargs) {
  const Phase phase = current_phase();
  ScratchTensors inputs;
  if (phase == Phase::Forward) {
    try {
      const char* name = is_sharded_ ? "FSDPMemTracker" : "MemTracker";
      if (is_root_call) memory_->begin_root_call(id, strict_, name);
    } catch (const NotSupported& error) {
      PyErr_SetString(PyExc_NotImplementedError, error.what());
      throw py::error_already_set();
    }
    if (described_.insert(id).second) describe(module, id);
    if (note_owned(module, id)) label_own(module, id, NamedBy::Hook);
    append_all_inner_tensors(args.ptr(), *inputs);
    append_all_inner_tensors(kwargs.ptr(), *inputs);
  }
  memory_->enter_module(id, phase, *inputs);
}

void MemTracker::on_leave(ModuleId id, py::handle output) {
  const Phase phase = current_phase();
  ScratchTensors outputs;
  if (phase == Phase::Forward) append_all_inner_tensors(output.ptr(), *outputs);
  memory_->exit_module(id, phase, *outputs);
}

void MemTracker::on_compiled(py::handle module, py::handle output) {
  const ModuleId id = ModuleRegistry::get().intern(module.ptr());
  if (described_.insert(id).second) track_module(module, NamedBy::Hook);
  ScratchTensors outputs;
  append_all_inner_tensors(output.ptr(), *outputs);
  for (const at::Tensor& tensor : *outputs) observe_made(tensor);
}

void MemTracker::on_death(ModuleId id) {
  unit_modules_.erase(id);
  described_.erase(id);
  owned_.erase(id);
  memory_->forget_module(id);
}

py::list MemTracker::to_rows(const Snapshot& snapshot) const {
  return is_sharded_ ? to_fsdp_rows(snapshot) : to_python(snapshot);
}

py::list MemTracker::modules() {
  py::list result;
  for (const ModuleId id : memory_->modules()) {
    if (is_sharded_ && !unit_modules_.contains(id)) continue;
    const py::object module = ModuleRegistry::get().resolve(id);
    if (!module.is_none()) result.append(py::make_tuple(module, modules_->activity()->name(id)));
  }
  return result;
}

py::dict MemTracker::module_stats(py::handle module) {
  ModuleStats stats = memory_->module_stats(ModuleRegistry::get().find(module.ptr()));
  if (!is_sharded_) return to_python(stats);
  add_recompute_of_wrapped(module, stats);
  return to_fsdp_stats(stats);
}

void bind_mem_tracker(py::module_& m) {
  fake_mode::connect_python(&find_fake_mode);
  MemTrackerClass tracker(m, "MemTracker",
                          "Bytes by device and category; see tidegauge.MemTracker.");
  tracker
      .def(py::init(&MemTracker::create), py::arg("mod_tracker"), py::arg("strict"),
           py::arg("allocator") = false, py::arg("stacks") = "none", py::arg("is_sharded") = false)
      .def("record_to", &MemTracker::record_to, py::arg("recorder"))
      .def("start", &MemTracker::start)
      .def("stop", &MemTracker::stop)
      .def("track_tensor", &MemTracker::track_tensor, py::arg("tensor"), py::arg("role"))
      .def(
          "track_module",
          [](MemTracker& self, py::handle module) { self.track_module(module, NamedBy::User); },
          py::arg("module"))
      .def(
          "track_optimizer",
          [](MemTracker& self, py::handle optimizer) {
            self.track_optimizer(optimizer, NamedBy::User);
          },
          py::arg("optimizer"))
      .def("reset_module_stats", &MemTracker::reset_module_stats)
      .def("post_mortem", [](MemTracker& self) { return self.memory().post_mortem(); })
      .def("current",
           [](MemTracker& self) {
             self.refresh_labels();
             return self.to_rows(self.memory().current());
           })
      .def("peak",
           [](MemTracker& self) {
             self.refresh_labels();
             return self.to_rows(self.memory().peak());
           })
      .def("foreign",
           [](MemTracker& self) {
             py::dict result;
             for (const auto& [device, bytes] : self.memory().foreign_bytes()) {
               result[to_python(device)] = py::int_(bytes);
             }
             return result;
           })
      .def(
          "splits",
          [](MemTracker& self, bool at_peak) {
            py::dict result;
            const Snapshot bytes = at_peak ? self.memory().peak() : self.memory().current();
            for (const DeviceSplit& each : bytes.devices) {
              py::dict split;
              for (size_t i = 0; i < kCategoryCount; ++i) {
                if (each.split.bytes[i] == 0) continue;
                split[py::str(std::string(to_string(static_cast<Category>(i))))] =
                    each.split.bytes[i];
              }
              result[to_python(each.device)] = split;
            }
            return result;
          },
          py::arg("at_peak"))
      .def("modules", &MemTracker::modules)
      .def("module_stats", &MemTracker::module_stats, py::arg("module"))
      .def_property_readonly("version", [](MemTracker& self) { return self.memory().version(); })
      .def("in_optimizer_step", [](MemTracker&) { return moment::in_optimizer_step(); })
      .def("in_recompute", [](MemTracker&) { return moment::in_recompute(); })
      .def("anomalies",
           [](MemTracker& self) {
             return std::make_pair(self.memory().anomaly_count(), self.memory().first_anomaly());
           })
      .def_property_readonly("footprint_bytes",
                             [](MemTracker& self) { return self.memory().footprint_bytes(); });
  bind_units(tracker);
}

}  // namespace tidegauge::bindings
