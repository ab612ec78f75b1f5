// SPDX-License-Identifier: BSD-3-Clause
#include "tidegauge/optimizer_step.h"

#include "capture/hooks/moment_facts.h"
#include "track/nn_mod_tracker.h"

namespace tidegauge {

OptimizerStepScope::OptimizerStepScope(const torch::optim::Optimizer& optimizer)
    : optimizer_(optimizer), trackers_(NnModTracker::entered()) {
  moment::begin_optimizer_step();
  for (const auto& tracker : *trackers_) tracker->begin_optimizer_step(optimizer_);
}

OptimizerStepScope::~OptimizerStepScope() {
  for (const auto& tracker : *trackers_) tracker->end_optimizer_step(optimizer_);
  moment::end_optimizer_step();
}

}  // namespace tidegauge
