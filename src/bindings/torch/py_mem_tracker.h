// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/torch/compiled_steps.h"
#include "bindings/torch/containment.h"
#include "bindings/torch/py_mod_tracker.h"
#include "trace/recorder.h"
#include "track/training_observer.h"

namespace tidegauge::bindings {

/// The front end of MemTracker for Python modules, bound as `_C.MemTracker`: a listener of a
/// PyModTracker that notifies a TrainingObserver. With `is_sharded` it serves FSDPMemTracker:
/// figures use its categories and states, and only modules of units are listed. All calls need the
/// GIL.
class PyMemTracker : public PyModuleListener, public std::enable_shared_from_this<PyMemTracker> {
 public:
  /// Throws UsageError for an unknown mode in `stacks` (capture/modules/birth_stacks.h).
  static std::shared_ptr<PyMemTracker> create(std::shared_ptr<PyModTracker> modules, bool strict,
                                              bool allocator, const std::string& stacks,
                                              bool is_sharded);
  ~PyMemTracker() override;

  void start();
  void stop();

  /// Throws UsageError for an unknown role.
  void track_tensor(pybind11::handle tensor, const std::string& role);
  /// Call when `module` has registered a parameter or buffer. Raises TypeError like
  /// PyModuleRegistry::intern.
  void register_tensor(pybind11::handle module, pybind11::handle tensor, Role role);
  void track_module(pybind11::handle module, LabelledBy labelled_by);
  void track_optimizer(pybind11::handle optimizer, LabelledBy labelled_by);
  /// Call around compiled code, which may contain a step of an optimizer.
  void begin_compiled_code();
  void end_compiled_code();
  /// Labels `grad` as the gradient of `input` if `input` is a parameter.
  void track_gradient(pybind11::handle input, pybind11::handle grad);

  void add_unit(UnitId unit, pybind11::handle name, const pybind11::sequence& modules);
  void label_unit(UnitId unit, UnitFact fact, const pybind11::sequence& tensors);
  /// No effect for a module that has no statistics or belongs to no unit.
  void mark_module(pybind11::handle module, ModuleState state);
  bool is_sharded() const { return is_sharded_; }
  /// Runs `body` for a hook; see containment.h.
  template <typename Body>
  bool contain(const char* where, Body&& body) noexcept {
    return contain_python(engine().failures().of_hooks(), where, body);
  }

  /// Updates all labels and returns the bytes by device and category, in the tracker's categories.
  pybind11::list snapshot(bool at_peak);
  pybind11::list modules();
  pybind11::dict module_stats(pybind11::handle module);

  TrainingObserver& observer() { return observer_; }
  MemEngine& engine() { return observer_.engine(); }
  bool is_started() const { return start_count_ > 0; }

  void on_enter(pybind11::handle module, ModuleId id, bool is_root_call, pybind11::handle args,
                pybind11::handle kwargs) override;
  void on_leave(ModuleId id, pybind11::handle output) override;
  void on_compiled(pybind11::handle module, pybind11::handle output) override;
  void on_recompute() override { observer_.begin_recompute(); }
  void on_death(ModuleId id) override { observer_.forget_module(id); }

 private:
  PyMemTracker(std::shared_ptr<PyModTracker> modules, bool strict, bool allocator, StackMode stacks,
               bool is_sharded);
  void label(pybind11::handle object, Role role, Since since, LabelledBy labelled_by,
             ModuleId owner = {});
  void label_states(pybind11::handle optimizer, LabelledBy labelled_by);
  void add_recompute_of_wrapped(pybind11::handle module, ModuleStats& stats);

  const std::shared_ptr<PyModTracker> modules_;
  TrainingObserver observer_;
  const bool is_sharded_;
  CompiledSteps compiled_steps_;
  int start_count_ = 0;
};

/// The trackers that are started. A copy, because Python code that a reader runs may start or stop
/// one.
std::vector<std::shared_ptr<PyMemTracker>> all_started();
/// Calls `notify(tracker)` for each of them, for a hook.
template <typename Notify>
void notify_started(const char* where, Notify&& notify) {
  for (const auto& tracker : all_started()) tracker->contain(where, [&] { notify(*tracker); });
}

using PyMemTrackerClass = pybind11::class_<PyMemTracker, std::shared_ptr<PyMemTracker>>;
PyMemTrackerClass bind_mem_tracker(pybind11::module_& m);
/// Binds the functions with which the patches of torch's Python notify all started trackers.
void bind_mem_events(pybind11::module_& m);

}  // namespace tidegauge::bindings
