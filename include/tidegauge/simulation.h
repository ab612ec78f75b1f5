// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tidegauge/export.h"

namespace tidegauge {

/// The answers of a simulation to programs that read unknown values.
struct SimulationPolicy {
  std::optional<double> item{};  ///< the value of every unknown element; none: reading one throws
  double mask_fraction = 1.0;    ///< the fraction of elements that a mask selects; 1: worst case
  /// The experts that a router chooses if its scores are unknown: real integers (int64) of shape
  /// [tokens, choices], each below `experts`. None: the choices are unknown.
  std::function<at::Tensor(int64_t tokens, int64_t choices, int64_t experts)> routing{};
};

/// How one op was simulated.
struct OpCoverage {
  std::string op;
  int64_t calls = 0;
  int64_t cached = 0;  ///< calls answered from the cache
  bool is_decomposed = false;
};

/// While it lives, the thread that created it and attached threads (tidegauge/threads.h) make
/// tensors without memory instead of real ones. Trackers treat them like real tensors:
///
///     const tidegauge::Simulation simulation;
///     Net net(...);                       // of any size
///     tidegauge::MemTracker tracker;      // and a step of training
///
/// torch's meta kernels give the shapes of results. Some of them are written in Python and exist
/// only in a process with Python; without it, such an op throws c10::NotImplementedError, which
/// names the op.
class TIDEGAUGE_API Simulation {
 public:
  /// Throws UsageError if a simulation is already running in any thread, or if the mask fraction is
  /// not between 0 and 1.
  explicit Simulation(const SimulationPolicy& policy = {});
  /// Simulated tensors that are still alive can be deleted but no longer used.
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  /// Makes simulated tensors on `device` with the sizes and strides of real or meta tensors.
  /// Tensors that share a storage still share one afterwards.
  std::vector<at::Tensor> adopt(const std::vector<at::Tensor>& tensors,
                                c10::Device device = c10::kCPU) const;
  /// Sorted by the name of the op.
  std::vector<OpCoverage> coverage() const;
};

}  // namespace tidegauge
