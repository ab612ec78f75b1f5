// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace tidegauge::simulation {

/// How many parts of size `b` hold `a`; the last may be smaller.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace tidegauge::simulation
