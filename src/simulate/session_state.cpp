// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/session_state.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace tidegauge::simulation {
namespace {

std::atomic<bool> is_running{false};
SimulationPolicy current_policy;
std::atomic<Locate> locate_line{nullptr};
thread_local constinit std::array<int, 2> pauses{};  // by `Made`

}  // namespace

bool is_on() { return is_running.load(std::memory_order_relaxed); }
const SimulationPolicy& policy() { return current_policy; }

void set_on(const SimulationPolicy& policy) {
  current_policy = policy;
  is_running = true;
}

void set_off() {
  is_running = false;
  current_policy.routing = {};  // may hold an object of the program
}

void pause(Made made) { ++pauses[static_cast<size_t>(made)]; }
void resume(Made made) { --pauses[static_cast<size_t>(made)]; }
bool is_paused(Made made) { return pauses[static_cast<size_t>(made)] > 0; }

void set_locate(Locate locate) { locate_line = locate; }

std::string at_line() {
  const Locate locate = locate_line;
  const std::string line = locate != nullptr ? locate() : std::string();
  return line.empty() ? line : " (at " + line + ")";
}

}  // namespace tidegauge::simulation
