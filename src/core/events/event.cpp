// SPDX-License-Identifier: BSD-3-Clause
#include "core/events/event.h"

#include <array>

namespace tidegauge {
namespace {

constexpr std::array<std::string_view, kModuleStateCount> kStateNames = {
    "Pre-Forward",         "Post-Forward",       "Peak-Forward",         "Pre-Backward",
    "Pre-Forward-AC",      "Post-Forward-AC",    "Post-Backward",        "Peak-Backward",
    "Before Pre-Forward",  "After Pre-Forward",  "Before Post-Forward",  "After Post-Forward",
    "Before Pre-Backward", "After Pre-Backward", "Before Post-Backward", "After Post-Backward",
};

constexpr std::array<std::string_view, kPhaseCount> kPhaseNames = {"forward", "backward",
                                                                   "recompute"};

}  // namespace

std::string_view to_string(Phase phase) {
  const auto index = static_cast<size_t>(phase);
  return index < kPhaseNames.size() ? kPhaseNames[index] : "unknown phase";
}

std::string_view to_string(ModuleState state) {
  const auto index = static_cast<size_t>(state);
  return index < kStateNames.size() ? kStateNames[index] : "unknown state";
}

}  // namespace tidegauge
