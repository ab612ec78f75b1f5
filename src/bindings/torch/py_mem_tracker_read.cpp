// SPDX-License-Identifier: BSD-3-Clause
//
// The queries of a PyMemTracker.
#include <utility>

#include "bindings/common/snapshots.h"
#include "bindings/torch/py_mem_tracker.h"
#include "bindings/torch/py_module_registry.h"
#include "bindings/torch/snapshots.h"

namespace py = pybind11;

namespace tidegauge::bindings {

py::list PyMemTracker::snapshot(bool at_peak) {
  observer_.refresh();
  const Snapshot bytes = at_peak ? engine().peak() : engine().current();
  return is_sharded_ ? to_fsdp_rows(bytes, &to_python) : to_mem_rows(bytes, &to_python);
}

py::list PyMemTracker::modules() {
  py::list result;
  for (const ModuleId id : engine().modules()) {
    if (is_sharded_ && !observer_.labels().is_unit_module(id)) continue;
    const py::object module = PyModuleRegistry::get().resolve(id);
    if (!module.is_none()) result.append(py::make_tuple(module, modules_->activity()->name(id)));
  }
  return result;
}

py::dict PyMemTracker::module_stats(py::handle module) {
  ModuleStats stats = engine().module_stats(PyModuleRegistry::get().find(module.ptr()));
  if (!is_sharded_) return to_mem_stats(stats, &to_python);
  add_recompute_of_wrapped(module, stats);
  return to_fsdp_stats(stats);
}

}  // namespace tidegauge::bindings
