// SPDX-License-Identifier: BSD-3-Clause
#include "track/training_observer.h"

#include <string>
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

/// A module call within a backward is a recompute.
Phase phase_of_call(bool is_bw) { return is_bw ? Phase::Recompute : Phase::Forward; }

}  // namespace

TrainingObserver::TrainingObserver(std::shared_ptr<ModuleActivity> activity,
                                   const ModuleSource& modules, const Options& options,
                                   MemEngine::IsParameter is_parameter)
    : labels_(std::make_shared<ModuleLabels>(modules)),
      engine_(MemEngine::create(std::move(activity), or_labelled(std::move(is_parameter), labels_),
                                options.has_allocator_channel, options.stack_mode)),
      strict_(options.strict),
      tracker_name_(options.tracker_name),
      note_exception_(options.note_exception) {}

void TrainingObserver::begin_call(const ModuleView& module, ModuleId id, bool is_root_call,
                                  bool is_bw, GetTensors inputs) {
  at::TensorList tensors;
  if (!is_bw) {
    if (is_root_call) {
      engine_->begin_root_call(id, strict_, tracker_name_);
      labels_->on_root_call();
    }
    contain("the tensors of a module", [&] { labels_->on_call(*engine_, module, id); });
    contain("the inputs of a module", [&] { tensors = inputs(); });
  }
  contain("the begin of a module call",
          [&] { engine_->enter_module(id, phase_of_call(is_bw), tensors); });
}

void TrainingObserver::end_call(ModuleId id, bool is_bw, GetTensors outputs) noexcept {
  at::TensorList tensors;
  if (!is_bw) contain("the outputs of a module", [&] { tensors = outputs(); });
  contain("the end of a module call",
          [&] { engine_->exit_module(id, phase_of_call(is_bw), tensors); });
}

void TrainingObserver::compiled_call(const ModuleView& module, GetTensors outputs) noexcept {
  contain("a compiled module", [&] {
    labels_->on_compiled_call(*engine_, module, module.intern());
    for (const at::Tensor& tensor : outputs()) observe_made(tensor);
  });
}

void TrainingObserver::begin_recompute() noexcept {
  contain("a recompute", [&] { engine_->begin_recompute(); });
}

void TrainingObserver::forget_module(ModuleId id) noexcept {
  contain("the end of a module", [&] {
    labels_->forget(id);
    engine_->forget_module(id);
  });
}

void TrainingObserver::begin_optimizer_step(c10::function_ref<std::string()> class_name) noexcept {
  contain("an optimizer step", [&] { engine_->optimizer_step(/*begins=*/true); });
  contain("the class of an optimizer", [&] {
    if (engine_->is_recording()) engine_->count_optimizer_step(class_name());
  });
}

void TrainingObserver::end_optimizer_step(c10::function_ref<void()> label_states) noexcept {
  contain("the states of an optimizer", label_states);
  contain("an optimizer step", [&] { engine_->optimizer_step(/*begins=*/false); });
}

void TrainingObserver::label_buckets(at::TensorList buckets) {
  for (size_t i = 0; i < buckets.size(); ++i) {
    engine_->label(buckets[i], Role::IsGradient, Since::Birth);
    engine_->name_owned(buckets[i], /*module=*/{}, "DDP bucket " + std::to_string(i));
  }
}

void TrainingObserver::reset_module_stats() {
  labels_->forget_sizes();
  engine_->reset_statistics();
}

}  // namespace tidegauge
