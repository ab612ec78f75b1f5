// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "simulate/session_state.h"
#include "tidegauge/export.h"
#include "tidegauge/simulation.h"

namespace tidegauge::simulation {

/// Starts a simulation; throws as the constructor of `Simulation` does (tidegauge/simulation.h).
/// `decomposed`: ops whose meta kernel is a decomposition that reads the device of its arguments.
TIDEGAUGE_API void start(const SimulationPolicy& policy,
                         const std::vector<std::string>& decomposed);
/// Simulated tensors that are still alive can be deleted but no longer used.
TIDEGAUGE_API void stop();

/// Coverage of the running simulation, or of the last one.
TIDEGAUGE_API std::vector<OpCoverage> coverage();

}  // namespace tidegauge::simulation
