// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "tidegauge/export.h"
#include "tidegauge/simulation.h"

/// The state that ops read while a simulation runs. `session.h` starts and stops it.
namespace tidegauge::simulation {

TIDEGAUGE_API bool is_on();
/// The policy of the running simulation, or of the last one.
const SimulationPolicy& policy();
/// Only for `session.cpp`.
void set_on(const SimulationPolicy& policy);
void set_off();

/// Which new tensors a pause makes real. Integers of a claimed device are then on the host, where
/// torch's C++ code reads them.
enum class Made : uint8_t { All, Integers };
/// After pause(), the tensors that this thread makes are real until the matching resume(). Pauses
/// nest. Ops with a simulated argument are still simulated.
TIDEGAUGE_API void pause(Made made);
TIDEGAUGE_API void resume(Made made);
TIDEGAUGE_API bool is_paused(Made made);

/// Returns the line of the user's program that is running, as "train.py:12"; empty if unknown.
using Locate = std::string (*)();
TIDEGAUGE_API void set_locate(Locate locate);
/// For a message: " (at train.py:12)", or nothing.
std::string at_line();

}  // namespace tidegauge::simulation
