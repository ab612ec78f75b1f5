// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/events/event.h"

namespace tidegauge {

/// How many steps begin with a StepMarker: the last one, and those before it of which a trace keeps
/// no event (trace/compaction.h). They are in `size_bytes`; 0 stands for one step. A damaged trace
/// may contain any number.
constexpr uint32_t steps_begun(const Event& marker) {
  return static_cast<uint32_t>(std::clamp<int64_t>(marker.size_bytes, 1, int64_t{1} << 30));
}

}  // namespace tidegauge
