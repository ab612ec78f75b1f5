// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// Lives while an op of this thread is simulated. Ops that it calls are simulated, too, but only
/// the outermost one is watched, as a real kernel would be.
class SimulatedDepth {
 public:
  SimulatedDepth() { ++depth_; }
  ~SimulatedDepth() { --depth_; }
  SimulatedDepth(const SimulatedDepth&) = delete;
  SimulatedDepth& operator=(const SimulatedDepth&) = delete;

  /// True while an op of this thread is simulated.
  static bool any();

 private:
  static thread_local constinit int depth_;
};

}  // namespace tidegauge
