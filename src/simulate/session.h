// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tidegauge/export.h"
#include "tidegauge/simulation.h"

namespace tidegauge::simulation {

/// As the maker of a `Simulation` (tidegauge/simulation.h), which says what it throws.
/// `decomposed`: ops whose meta kernel is a decomposition that asks for the device.
TIDEGAUGE_API void start(const SimulationPolicy& policy,
                         const std::vector<std::string>& decomposed);
/// Simulated tensors that are left can be deleted, not used.
TIDEGAUGE_API void stop();
TIDEGAUGE_API bool is_on();
/// What this thread makes is real until as many resumes: all of it, or integers only. Ops with a
/// simulated argument are simulated still.
enum class Made : uint8_t { All, Integers };
TIDEGAUGE_API void pause(Made made);
TIDEGAUGE_API void resume(Made made);
TIDEGAUGE_API bool is_paused(Made made);

const SimulationPolicy& policy();
/// Of the running simulation, or the last one.
TIDEGAUGE_API std::vector<OpCoverage> coverage();

/// Names the line of the user's program that is running, as "train.py:12"; empty if unknown.
using Locate = std::string (*)();
TIDEGAUGE_API void set_locate(Locate locate);
/// For a message: " (at train.py:12)", or nothing.
std::string at_line();

}  // namespace tidegauge::simulation
