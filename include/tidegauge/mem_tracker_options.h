// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace tidegauge {

struct MemTrackerOptions {
  /// True: a second call of a root module throws NotSupported unless `reset_mod_stats` was called
  /// in between, as in torch's MemTracker. False: that call restarts the module statistics.
  bool strict = false;
  /// Also counts CPU allocations that belong to no tensor (workspaces of kernels), as part of
  /// Other. While entered, torch's CPU allocator is wrapped.
  bool allocator = false;
  /// The trace file to record to (docs/trace-format.md); empty: none.
  std::string record{};
  bool overwrites = false;  ///< replace an existing trace file
  /// What to record about the place of each allocation: "none", or "module" (the running modules).
  std::string stacks = "none";
};

}  // namespace tidegauge
