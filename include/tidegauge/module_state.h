// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace tidegauge {

/// Moments of a module call: first MemTracker's, then those that only FSDPMemTracker has. The
/// numbers go into trace files: append, never renumber.
enum class ModuleState : uint8_t {
  PreForward,
  PostForward,
  PeakForward,
  PreBackward,
  PreForwardAc,
  PostForwardAc,
  PostBackward,
  PeakBackward,
  BeforePreForward,
  AfterPreForward,
  BeforePostForward,
  AfterPostForward,
  BeforePreBackward,
  AfterPreBackward,
  BeforePostBackward,
  AfterPostBackward,
};
inline constexpr uint8_t kModuleStateCount = 16;

/// torch's spelling ("Pre-Forward").
std::string_view to_string(ModuleState state);

}  // namespace tidegauge
