// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidegauge/export.h"

namespace tidegauge {

/// What a simulation answers where a program asks for values that do not exist.
struct SimulationPolicy {
  std::optional<double> item{};  ///< of every value; none: an error
  double mask_fraction = 1.0;    ///< of its elements, how many a mask selects; 1: the worst case
};

/// How one op was simulated.
struct OpCoverage {
  std::string op;
  int64_t calls = 0;
  int64_t cached = 0;  ///< of them, those answered from the cache
  bool is_decomposed = false;
};

/// As long as it lives, the thread that made it, and those attached (tidegauge/threads.h), make
/// tensors without memory wherever they would make real ones. Trackers see them as real ones:
///
///     const tidegauge::Simulation simulation;
///     Net net(...);                       // of any size
///     tidegauge::MemTracker tracker;      // and a step of training
///
/// Ops are answered by torch's meta kernels. Those that torch has in Python are there only in a
/// process with Python; without, such an op throws c10::NotImplementedError with its name.
class TIDEGAUGE_API Simulation {
 public:
  /// UsageError if a simulation is on already, in whatever thread, or if a fraction is none.
  explicit Simulation(const SimulationPolicy& policy = {});
  /// Tensors that are left can be deleted, not used.
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  /// Simulated tensors of the geometry of real or meta ones, on `device`; those that share a
  /// storage go on to do so.
  std::vector<at::Tensor> adopt(const std::vector<at::Tensor>& tensors,
                                c10::Device device = c10::kCPU) const;
  /// By name of the op.
  std::vector<OpCoverage> coverage() const;
};

}  // namespace tidegauge
