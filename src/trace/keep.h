// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace tidegauge::trace {

/// How much of a long run a trace keeps: the last `steps`, or the last `time_ns`; 0: everything.
struct Keep {
  int64_t time_ns = 0;
  int64_t steps = 0;

  bool is_limited() const { return time_ns > 0 || steps > 0; }
};

}  // namespace tidegauge::trace
