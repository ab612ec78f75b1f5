// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

namespace tidegauge::bindings {

/// Notices the steps of optimizers in compiled code, which calls no hooks: a step changes the
/// version counters of the parameters. Needs the GIL.
class CompiledSteps {
 public:
  /// Holds the optimizer weakly. Call again after each step that is not compiled.
  void add(pybind11::handle optimizer);

  struct Step {
    pybind11::object optimizer;
    /// False for a further part of the last step: dynamo may split a step into several graphs, each
    /// for other parameters.
    bool is_new = true;
  };
  /// Call before and after each call of compiled code, in pairs.
  void begin_call();
  std::vector<Step> end_call();

 private:
  struct Known {
    pybind11::weakref optimizer;
    std::vector<bool> is_updated;  ///< by position: the last step has changed the parameter
  };
  using Versions = std::vector<uint32_t>;
  static Versions read_versions(pybind11::handle optimizer);

  std::vector<Known> known_;
  std::vector<std::vector<Versions>> before_;  // calls nest
};

}  // namespace tidegauge::bindings
