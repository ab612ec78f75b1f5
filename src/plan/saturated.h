// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>

/// Arithmetic on counts (at least 0) that stops at the largest number instead of wrapping around.
namespace tidegauge::saturated {

inline int64_t multiply(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}
inline int64_t add(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}
inline int64_t product(std::span<const int64_t> factors) {
  int64_t result = 1;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    result = multiply(result, factor);
  }
  return result;
}
inline int64_t product(std::initializer_list<int64_t> factors) {
  return product(std::span(factors.begin(), factors.size()));
}

}  // namespace tidegauge::saturated
