// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "tidegauge/export.h"

namespace tidegauge {

/// Tells which calls of compiled code are steps of one optimizer. Compiled code calls no hooks, but
/// a step changes the version counters of the parameters.
class TIDEGAUGE_API UpdateHistory {
 public:
  using Versions = std::vector<uint32_t>;  ///< of the parameters, by position

  /// Further: another part of the last step. dynamo may split a step into several graphs, each for
  /// other parameters.
  enum class Update : uint8_t { None, NewStep, Further };
  /// `before`, `after`: the versions before and after one call.
  Update add_call(const Versions& before, const Versions& after);
  /// Call after a step that is not compiled.
  void clear() { is_updated_.clear(); }

 private:
  std::vector<bool> is_updated_;  // by position: the last step has changed the parameter
};

}  // namespace tidegauge
