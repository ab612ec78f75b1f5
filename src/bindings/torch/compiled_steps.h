// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "track/update_history.h"

namespace tidegauge::bindings {

/// Reads the versions of the parameters of all optimizers around calls of compiled code, so that
/// UpdateHistory can find the steps. Needs the GIL.
class CompiledSteps {
 public:
  /// Holds the optimizer weakly. Call again after each step that is not compiled.
  void add(pybind11::handle optimizer);

  struct Step {
    pybind11::object optimizer;
    bool is_new = true;  ///< false for a further part of the last step
  };
  /// Call before and after each call of compiled code, in pairs.
  void begin_call();
  std::vector<Step> end_call();

 private:
  struct Known {
    pybind11::weakref optimizer;
    UpdateHistory history;
  };
  using Versions = UpdateHistory::Versions;
  static Versions read_versions(pybind11::handle optimizer);

  std::vector<Known> known_;
  std::vector<std::vector<Versions>> before_;  // calls nest
};

}  // namespace tidegauge::bindings
