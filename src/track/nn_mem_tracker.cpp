// SPDX-License-Identifier: BSD-3-Clause
#include "track/nn_mem_tracker.h"

#include <utility>

#include "capture/compat/torch_version.h"
#include "capture/modules/nn_module_registry.h"
#include "capture/modules/nn_module_view.h"
#include "track/optimizer_states.h"

namespace tidegauge {
namespace {

std::shared_ptr<Recorder> make_recorder(const MemTrackerOptions& options) {
  if (options.record.empty()) return nullptr;
  RecorderOptions how;
  how.overwrites = options.overwrites;
  how.facts["torch_version"] = torch_version();
  return std::make_shared<Recorder>(options.record, std::move(how));
}

TrainingObserver::Options observer_options(const MemTrackerOptions& options) {
  return {.strict = options.strict,
          .has_allocator_channel = options.allocator,
          .stack_mode = parse_stack_mode(options.stacks, /*has_python=*/false)};
}

}  // namespace

NnMemTracker::NnMemTracker(const MemTrackerOptions& options)
    : observer(activity, nn_modules(), observer_options(options)),
      recorder(make_recorder(options)) {
  if (recorder) engine().record_to(recorder);
}

void NnMemTracker::begin_optimizer_step(const torch::optim::Optimizer& optimizer) noexcept {
  observer.begin_optimizer_step([&] { return class_name(optimizer); });
}

void NnMemTracker::end_optimizer_step(const torch::optim::Optimizer& optimizer) noexcept {
  observer.end_optimizer_step([&] { label_states(optimizer, LabelledBy::Hook); });
}

void NnMemTracker::label_module(const torch::nn::Module& module, LabelledBy labelled_by) {
  observer.labels().label(engine(), NnModuleView(module), labelled_by);
}

void NnMemTracker::label_states(const torch::optim::Optimizer& optimizer, LabelledBy labelled_by) {
  ParameterOwners::Table owners;  // only a trace has them
  if (engine().is_recording()) owners = NnModuleRegistry::get().parameter_owners();
  visit_states(optimizer, [&](const void* parameter, const at::Tensor& state) {
    const auto owner = owners.find(parameter);
    engine().label(state, Role::IsOptimizerState, Since::Birth,
                   owner == owners.end() ? ModuleId{} : owner->second, labelled_by);
  });
}

void NnMemTracker::on_enter(const torch::nn::Module& module, ModuleId id,
                            const ModuleActivity::Entered& entered, at::TensorList inputs) {
  observer.begin_call(NnModuleView(module), id, entered.is_root_call, entered.is_bw,
                      [&] { return inputs; });
}

void NnMemTracker::on_leave(ModuleId id, bool is_bw, at::TensorList outputs) noexcept {
  observer.end_call(id, is_bw, [&] { return outputs; });
}

void NnMemTracker::on_new_modules() {
  for (const ModuleId dead : observer.labels().forget_dead()) {
    activity->mark_dead(dead);
    observer.forget_module(dead);
  }
}

}  // namespace tidegauge
