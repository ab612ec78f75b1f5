// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace tidegauge {

struct MemTrackerOptions {
  /// A second call of a root module throws NotSupported unless `reset_mod_stats` came between, as
  /// upstream does; otherwise module statistics begin anew with it.
  bool strict = false;
  /// Also counts what the CPU allocator makes and no tensor shows (workspace of kernels); part of
  /// Other. While entered, torch's CPU allocator has a layer of ours on top.
  bool allocator = false;
  /// A trace file to write all of it to (docs/trace-format.md); empty: none.
  std::string record{};
  bool overwrites = false;  ///< replaces a trace file that exists
  /// What is kept of where memory was allocated: "none", or "module", the modules that were
  /// running.
  std::string stacks = "none";
};

}  // namespace tidegauge
