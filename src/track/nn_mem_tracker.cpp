// SPDX-License-Identifier: BSD-3-Clause
#include "track/nn_mem_tracker.h"

#include <exception>
#include <utility>

#include "capture/compat/torch_version.h"
#include "capture/modules/nn_module_view.h"
#include "track/optimizer_states.h"

namespace tidegauge {
namespace {

/// A module call within a backward is a recompute.
Phase phase_of_call(bool is_bw) { return is_bw ? Phase::Recompute : Phase::Forward; }

std::shared_ptr<Recorder> make_recorder(const MemTrackerOptions& options) {
  if (options.record.empty()) return nullptr;
  RecorderOptions how;
  how.overwrites = options.overwrites;
  how.facts["torch_version"] = torch_version();
  return std::make_shared<Recorder>(options.record, std::move(how));
}

}  // namespace

NnMemTracker::NnMemTracker(const MemTrackerOptions& options)
    : labels(std::make_shared<ModuleLabels>(nn_modules())),
      memory(MemoryTracker::create(
          activity,
          [labels = labels](const at::Tensor& leaf) { return labels->is_parameter(leaf); },
          options.allocator, parse_stack_mode(options.stacks, /*has_python=*/false))),
      recorder(make_recorder(options)),
      strict_(options.strict) {
  if (recorder) memory->record_to(recorder);
}

template <typename Body>
void NnMemTracker::guarded(const char* where, Body&& body) noexcept {
  try {
    body();
  } catch (const std::exception& error) {
    const std::lock_guard lock(failure_mutex_);
    if (failure_count_++ == 0) first_failure_ = std::string(where) + ": " + error.what();
  }
}

void NnMemTracker::begin_optimizer_step() noexcept {
  guarded("an optimizer step", [&] { memory->optimizer_step(/*begins=*/true); });
}

void NnMemTracker::end_optimizer_step(const torch::optim::Optimizer& optimizer) noexcept {
  guarded("an optimizer step", [&] {
    label_states(optimizer);
    if (memory->is_recording()) memory->count_optimizer_step(class_name(optimizer));
    memory->optimizer_step(/*begins=*/false);
  });
}

void NnMemTracker::label_module(const torch::nn::Module& module) {
  labels->label(*memory, NnModuleView(module), LabelledBy::Hook);
}

void NnMemTracker::label_states(const torch::optim::Optimizer& optimizer) {
  visit_states(optimizer, [&](const at::Tensor& state) {
    memory->label(state, Role::IsOptimizerState, Since::Birth);
  });
}

void NnMemTracker::on_enter(const torch::nn::Module& module, ModuleId id,
                            const ModuleActivity::Entered& entered, at::TensorList inputs) {
  const Phase phase = phase_of_call(entered.is_bw);
  const bool is_forward = phase == Phase::Forward;
  if (is_forward && entered.is_root_call) memory->begin_root_call(id, strict_);
  guarded("entering a module", [&] {
    if (is_forward) labels->on_call(*memory, NnModuleView(module), id);
    memory->enter_module(id, phase, is_forward ? inputs : at::TensorList());
  });
}

void NnMemTracker::on_leave(ModuleId id, bool is_bw, at::TensorList outputs) noexcept {
  const Phase phase = phase_of_call(is_bw);
  guarded("leaving a module", [&] {
    memory->exit_module(id, phase, phase == Phase::Forward ? outputs : at::TensorList());
  });
}

void NnMemTracker::on_new_modules() {
  for (const ModuleId dead : labels->forget_dead()) {
    activity->mark_dead(dead);
    memory->forget_module(dead);
  }
}

int64_t NnMemTracker::failure_count() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_count_;
}

std::string NnMemTracker::first_failure() const {
  const std::lock_guard lock(failure_mutex_);
  return first_failure_;
}

}  // namespace tidegauge
