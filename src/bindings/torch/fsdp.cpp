// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/fsdp.h"

#include <pybind11/native_enum.h>

#include <string>
#include <utility>

#include "bindings/torch/py_mem_tracker.h"
#include "bindings/torch/py_module_registry.h"
#include "bindings/torch/snapshots.h"
#include "bindings/torch/tensors.h"
#include "core/ledger/fsdp_states.h"
#include "track/unit_births.h"

namespace py = pybind11;

namespace tidegauge::bindings {

void PyMemTracker::add_unit(UnitId unit, py::handle name, const py::sequence& modules) {
  engine().add_unit(unit, text_of(name.ptr()));
  for (const py::handle module : modules) {
    observer_.labels().add_unit_module(PyModuleRegistry::get().intern(module.ptr()));
  }
}

void PyMemTracker::label_unit(UnitId unit, UnitFact fact, const py::sequence& tensors) {
  ScratchTensors inner;
  for (const py::handle tensor : tensors) append_inner_tensors(tensor.ptr(), *inner);
  for (const at::Tensor& tensor : *inner) engine().label_unit(unit, fact, tensor);
}

void PyMemTracker::add_recompute_of_wrapped(py::handle module, ModuleStats& stats) {
  const py::object wrapped = py::getattr(module, "_checkpoint_wrapped_module", py::none());
  if (wrapped.is_none()) return;
  add_recompute(stats, engine().module_stats(PyModuleRegistry::get().find(wrapped.ptr())));
}

void PyMemTracker::mark_module(py::handle module, ModuleState state) {
  const ModuleId id = PyModuleRegistry::get().find(module.ptr());
  if (observer_.labels().is_unit_module(id)) engine().mark_module(id, state);
}

namespace {

/// Notifies all started FSDPMemTrackers.
template <typename Notify>
void notify_sharded(Notify&& notify) {
  notify_started("an FSDP2 unit", [&](PyMemTracker& tracker) {
    if (tracker.is_sharded()) notify(tracker);
  });
}

/// Binds a method of the tracker or its engine that takes a unit. Python passes the unit's number.
template <typename... Args>
auto about_unit(void (PyMemTracker::*method)(UnitId, Args...)) {
  return [method](PyMemTracker& tracker, uint32_t unit, Args... args) {
    (tracker.*method)(UnitId(unit), args...);
  };
}
template <typename... Args>
auto about_unit(void (MemEngine::*method)(UnitId, Args...)) {
  return [method](PyMemTracker& tracker, uint32_t unit, Args... args) {
    (tracker.engine().*method)(UnitId(unit), args...);
  };
}
/// The same for all started FSDPMemTrackers.
template <typename Owner, typename... Args>
auto for_all(void (Owner::*method)(UnitId, Args...)) {
  return [notify = about_unit(method)](uint32_t unit, Args... args) {
    notify_sharded([&](PyMemTracker& tracker) { notify(tracker, unit, args...); });
  };
}

}  // namespace

void bind_units(PyMemTrackerClass& tracker) {
  tracker
      .def("add_unit", about_unit(&PyMemTracker::add_unit), py::arg("unit"), py::arg("name"),
           py::arg("modules"))
      .def("label_unit", about_unit(&PyMemTracker::label_unit), py::arg("unit"), py::arg("fact"),
           py::arg("tensors"))
      .def("resume_unit", about_unit(&MemEngine::resume_gather), py::arg("unit"),
           py::arg("is_unsharded"))
      .def("units", [](PyMemTracker& self) { return to_python(self.engine().units()); })
      .def("failures", [](PyMemTracker& self) {
        TrackerFailures& failures = self.engine().failures();
        return std::make_pair(failures.count(), failures.first());
      });
}

void bind_fsdp(py::module_& m) {
  py::native_enum<UnitFact>(m, "UnitFact", "enum.Enum", "The role of a storage in a unit.")
      .value("SHARD", UnitFact::Shard)
      .value("GATHER_BUFFER", UnitFact::GatherBuffer)
      .value("UNSHARDED", UnitFact::Unsharded)
      .value("POST_FORWARD_SHARD", UnitFact::PostForwardShard)
      .value("UNSHARDED_GRAD", UnitFact::UnshardedGrad)
      .value("REDUCE_BUFFER", UnitFact::ReduceBuffer)
      .value("ALL_REDUCE_BUFFER", UnitFact::AllReduceBuffer)
      .value("REDUCED_GRAD", UnitFact::ReducedGrad)
      .value("SHARD_GRAD", UnitFact::ShardGrad)
      .finalize();
  py::native_enum<ModuleState>(m, "ModuleState", "enum.Enum",
                               "Module states that FSDP2 itself reaches.")
      .value("AFTER_PRE_FORWARD", ModuleState::AfterPreForward)
      .value("BEFORE_POST_FORWARD", ModuleState::BeforePostForward)
      .value("BEFORE_PRE_BACKWARD", ModuleState::BeforePreBackward)
      .value("AFTER_PRE_BACKWARD", ModuleState::AfterPreBackward)
      .value("BEFORE_POST_BACKWARD", ModuleState::BeforePostBackward)
      .value("AFTER_POST_BACKWARD", ModuleState::AfterPostBackward)
      .finalize();
  m.def("new_unit", [] { return new_unit_id().value; });
  m.def("unit_made", for_all(&PyMemTracker::add_unit), py::arg("unit"), py::arg("name"),
        py::arg("modules"));
  m.def("unit_fact", for_all(&PyMemTracker::label_unit), py::arg("unit"), py::arg("fact"),
        py::arg("tensors"));
  m.def(
      "begin_unit_births",
      [](uint32_t unit, UnitFact fact) { begin_unit_births(UnitId(unit), fact); }, py::arg("unit"),
      py::arg("fact"));
  m.def("end_unit_births", &end_unit_births);
  m.def(
      "unit_gathering",
      [](uint32_t unit, const std::string& training_state, bool is_prefetch) {
        for_all (&MemEngine::begin_gather)(unit, find_gather_reason(training_state, is_prefetch));
      },
      py::arg("unit"), py::arg("training_state"), py::arg("is_prefetch"));
  m.def("unit_unsharded", for_all(&MemEngine::finish_gather), py::arg("unit"));
  m.def("unit_released", for_all(&MemEngine::release), py::arg("unit"),
        py::arg("keeps_post_forward_shard"));
  m.def("unit_reduced", for_all(&MemEngine::reduce), py::arg("unit"));
  m.def(
      "mark_modules",
      [](const py::sequence& modules, ModuleState mark) {
        for (const py::handle module : modules) {
          notify_sharded([&](PyMemTracker& tracker) { tracker.mark_module(module, mark); });
        }
      },
      py::arg("modules"), py::arg("mark"));
}

}  // namespace tidegauge::bindings
