// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <utility>
#include <vector>

#include "tidegauge/export.h"
#include "tidegauge/mod_tracker.h"

namespace tidegauge {

/// One step of an optimizer, for all entered trackers. Tensors created in it count as Optstate,
/// even temporary ones. At its end the optimizer's states are labelled. Modules that a closure
/// calls still make activations. Nests. Must be destroyed in the thread that created it.
class TIDEGAUGE_API OptimizerStepScope {
 public:
  /// `optimizer` must outlive the scope.
  explicit OptimizerStepScope(const torch::optim::Optimizer& optimizer);
  ~OptimizerStepScope();
  OptimizerStepScope(const OptimizerStepScope&) = delete;
  OptimizerStepScope& operator=(const OptimizerStepScope&) = delete;

 private:
  const torch::optim::Optimizer& optimizer_;
  const std::shared_ptr<const NnModTrackers> trackers_;
};

/// Calls `optimizer.step(closure)` within an OptimizerStepScope.
inline at::Tensor step(torch::optim::Optimizer& optimizer,
                       torch::optim::Optimizer::LossClosure closure = nullptr) {
  const OptimizerStepScope scope(optimizer);
  return optimizer.step(std::move(closure));
}

}  // namespace tidegauge
