// SPDX-License-Identifier: BSD-3-Clause
#include "track/training_observer.h"

#include <utility>

#include "capture/hooks/unseen_changes.h"

namespace tidegauge {
namespace {

MemEngine::IsParameter or_labelled(MemEngine::IsParameter is_parameter,
                                   std::shared_ptr<ModuleLabels> labels) {
  if (is_parameter) return is_parameter;
  return
      [labels = std::move(labels)](const at::Tensor& leaf) { return labels->is_parameter(leaf); };
}

}  // namespace

TrainingObserver::TrainingObserver(std::shared_ptr<ModuleActivity> activity,
                                   const ModuleSource& modules, const Options& options,
                                   MemEngine::IsParameter is_parameter)
    : labels_(std::make_shared<ModuleLabels>(modules)),
      engine_(MemEngine::create(std::move(activity), or_labelled(std::move(is_parameter), labels_),
                                options.has_allocator_channel, options.stack_mode)),
      strict_(options.strict),
      tracker_name_(options.tracker_name) {}

void TrainingObserver::begin_call(const ModuleView& module, ModuleId id, bool is_root_call,
                                  bool is_bw, GetTensors inputs) {
  if (!is_bw && is_root_call) engine_->begin_root_call(id, strict_, tracker_name_);
  failures_.guard("entering a module", [&] {
    if (is_bw) return engine_->enter_module(id, Phase::Recompute, {});
    labels_->on_call(*engine_, module, id);
    engine_->enter_module(id, Phase::Forward, inputs());
  });
}

void TrainingObserver::end_call(ModuleId id, bool is_bw, GetTensors outputs) noexcept {
  failures_.guard("leaving a module", [&] {
    if (is_bw) return engine_->exit_module(id, Phase::Recompute, {});
    engine_->exit_module(id, Phase::Forward, outputs());
  });
}

void TrainingObserver::compiled_call(const ModuleView& module, GetTensors outputs) noexcept {
  failures_.guard("a compiled module", [&] {
    labels_->on_compiled_call(*engine_, module, module.intern());
    for (const at::Tensor& tensor : outputs()) observe_made(tensor);
  });
}

void TrainingObserver::forget_module(ModuleId id) noexcept {
  failures_.guard("a destroyed module", [&] {
    labels_->forget(id);
    engine_->forget_module(id);
  });
}

void TrainingObserver::begin_optimizer_step(c10::function_ref<std::string()> class_name) noexcept {
  failures_.guard("an optimizer step", [&] {
    if (engine_->is_recording()) engine_->count_optimizer_step(class_name());
    engine_->optimizer_step(/*begins=*/true);
  });
}

void TrainingObserver::end_optimizer_step(c10::function_ref<void()> label_states) noexcept {
  failures_.guard("the states of an optimizer", label_states);
  failures_.guard("an optimizer step", [&] { engine_->optimizer_step(/*begins=*/false); });
}

void TrainingObserver::reset_module_stats() {
  labels_->forget_sizes();
  engine_->reset_statistics();
}

}  // namespace tidegauge
