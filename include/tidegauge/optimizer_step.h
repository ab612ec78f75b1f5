// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <utility>
#include <vector>

#include "tidegauge/export.h"
#include "tidegauge/mod_tracker.h"

namespace tidegauge {

/// One step of an optimizer, for all entered trackers: what it makes counts as Optstate, whether it
/// stays or not, and the states that it has at the end are known as such. Modules that a closure
/// calls make activations all the same. Nests; ends in the thread that began, also by an exception.
class TIDEGAUGE_API OptimizerStepScope {
 public:
  /// `optimizer` must outlive the scope.
  explicit OptimizerStepScope(const torch::optim::Optimizer& optimizer);
  ~OptimizerStepScope();
  OptimizerStepScope(const OptimizerStepScope&) = delete;
  OptimizerStepScope& operator=(const OptimizerStepScope&) = delete;

 private:
  const torch::optim::Optimizer& optimizer_;
  const std::shared_ptr<const ModTracker::Impls> trackers_;
};

/// `optimizer.step(closure)` within an OptimizerStepScope.
inline at::Tensor step(torch::optim::Optimizer& optimizer,
                       torch::optim::Optimizer::LossClosure closure = nullptr) {
  const OptimizerStepScope scope(optimizer);
  return optimizer.step(std::move(closure));
}

}  // namespace tidegauge
