// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <memory>
#include <string>
#include <string_view>

#include "capture/modules/module_activity.h"
#include "capture/modules/module_view.h"
#include "core/util/failures.h"
#include "tidegauge/export.h"
#include "track/mem_engine.h"
#include "track/module_labels.h"

namespace tidegauge {

/// What a memory tracker does at a module call and at an optimizer step, and in which order. The
/// front ends, PyMemTracker and NnMemTracker, only convert their arguments.
///
/// Our own failures are counted (MemEngine::failures) and do not reach the training: a step that
/// fails does not keep the next one from being taken. The one exception is part of the drop-in API:
/// with `strict`, a second call of a root module throws NotSupported. Callers hold none of our
/// locks; calls about Python modules hold the GIL.
class TIDEGAUGE_API TrainingObserver {
 public:
  /// Called at most once, and only for a forward.
  using GetTensors = c10::function_ref<at::TensorList()>;

  struct Options {
    bool strict = false;
    bool has_allocator_channel = false;
    StackMode stack_mode = StackMode::None;
    const char* tracker_name = "MemTracker";  ///< for the error of `strict`
    /// Notes the exception that is being handled; Python's may need more than its text.
    NoteException note_exception = &note_current_exception;
  };

  /// `is_parameter`: see MemEngine. By default, the leaf is looked for in all labelled modules.
  TrainingObserver(std::shared_ptr<ModuleActivity> activity, const ModuleSource& modules,
                   const Options& options, MemEngine::IsParameter is_parameter = {});

  /// A call within a backward (`is_bw`) is a recompute.
  void begin_call(const ModuleView& module, ModuleId id, bool is_root_call, bool is_bw,
                  GetTensors inputs);
  void end_call(ModuleId id, bool is_bw, GetTensors outputs) noexcept;
  /// Call when a compiled module has returned `outputs`.
  void compiled_call(const ModuleView& module, GetTensors outputs) noexcept;
  /// Call before a checkpoint runs its forward again.
  void begin_recompute() noexcept;
  void forget_module(ModuleId id) noexcept;

  /// `class_name` is called only if the engine records.
  void begin_optimizer_step(c10::function_ref<std::string()> class_name) noexcept;
  /// `label_states` labels the states of the optimizer.
  void end_optimizer_step(c10::function_ref<void()> label_states) noexcept;

  /// Labels the buckets in which DistributedDataParallel collects gradients.
  void label_buckets(at::TensorList buckets);
  /// Labels what has changed unobserved. Call before the engine answers a query.
  void refresh() { labels_->refresh(*engine_); }
  void reset_module_stats();

  MemEngine& engine() const { return *engine_; }
  ModuleLabels& labels() const { return *labels_; }

 private:
  template <typename Body>
  void contain(std::string_view where, Body&& body) noexcept {
    tidegauge::contain(engine_->failures().of_hooks(), where, body, note_exception_);
  }

  const std::shared_ptr<ModuleLabels> labels_;  // the engine may outlive this object
  const std::shared_ptr<MemEngine> engine_;
  const bool strict_;
  const char* const tracker_name_;
  const NoteException note_exception_;
};

}  // namespace tidegauge
