// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidegauge/export.h"

namespace tidegauge::simulation {

/// What a simulation answers where a program asks for values that do not exist.
struct Policy {
  std::optional<double> item;  ///< of every value; none: an error
  double mask_fraction = 1.0;  ///< of its elements, how many a mask selects; 1: the worst case
};

/// How one op was simulated.
struct OpCoverage {
  std::string op;
  int64_t calls = 0;
  int64_t cached = 0;  ///< of them, those answered from the cache
  bool is_decomposed = false;
};

/// From now on the calling thread, and those attached (tidegauge/threads.h), make simulated tensors
/// wherever they would make real ones. `decomposed`: ops whose meta kernel is a decomposition that
/// asks for the device. UsageError if a simulation is on already, in whatever thread.
TIDEGAUGE_API void start(const Policy& policy, const std::vector<std::string>& decomposed);
/// Simulated tensors that are left can be deleted, not used.
TIDEGAUGE_API void stop();
TIDEGAUGE_API bool is_on();
/// Ops run really until as many resumes; for this thread. Those with a simulated argument are
/// simulated still.
TIDEGAUGE_API void pause();
TIDEGAUGE_API void resume();
bool is_paused();

const Policy& policy();
/// Of the running simulation, or the last one.
TIDEGAUGE_API std::vector<OpCoverage> coverage();

/// Names the line of the user's program that is running, as "train.py:12"; empty if unknown.
using Locate = std::string (*)();
TIDEGAUGE_API void set_locate(Locate locate);
std::string locate();

}  // namespace tidegauge::simulation
