// SPDX-License-Identifier: BSD-3-Clause
#include "tidegauge/simulation.h"

#include "simulate/adopt.h"
#include "simulate/session.h"

namespace tidegauge {

Simulation::Simulation(const SimulationPolicy& policy) { simulation::start(policy, {}); }
Simulation::~Simulation() { simulation::stop(); }

// NOLINTBEGIN(readability-convert-member-functions-to-static): they require a running simulation
std::vector<at::Tensor> Simulation::adopt(const std::vector<at::Tensor>& tensors,
                                          c10::Device device) const {
  return simulation::adopt(tensors, device);
}
std::vector<OpCoverage> Simulation::coverage() const { return simulation::coverage(); }
// NOLINTEND(readability-convert-member-functions-to-static)

}  // namespace tidegauge
