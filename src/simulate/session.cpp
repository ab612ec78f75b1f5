// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "capture/hooks/op_hook.h"
#include "simulate/known_values.h"
#include "simulate/op_traits.h"
#include "simulate/output_cache.h"
#include "simulate/simulated_tensor.h"
#include "simulate/simulator.h"
#include "tidegauge/errors.h"

namespace tidegauge::simulation {
namespace {

std::mutex mutex;
std::atomic<bool> is_running{false};
SimulationPolicy current_policy;
op_hook::Thread thread;
std::atomic<Locate> locate_line{nullptr};
thread_local constinit std::array<int, 2> pauses{};  // by `Made`

}  // namespace

void start(const SimulationPolicy& policy, const std::vector<std::string>& decomposed) {
  const std::lock_guard lock(mutex);
  if (is_running) {
    throw UsageError(
        "a simulation is on already in this process, and there can be only one; leave it before "
        "the next one is entered");
  }
  if (!(policy.mask_fraction >= 0 && policy.mask_fraction <= 1)) {
    throw UsageError("mask_fraction is " + std::to_string(policy.mask_fraction) +
                     "; it is the share of its elements that a mask selects, from 0 to 1");
  }
  OpTraits::reset(decomposed);
  OutputCache::clear();
  known_values::reset_generator();
  current_policy = policy;
  thread = op_hook::start_in_this_thread();
  op_hook::set_runner(&run);
  op_hook::hold_runner();
  is_running = true;
}

void stop() {
  const std::lock_guard lock(mutex);
  if (!is_running) return;
  is_running = false;
  op_hook::stop_in(thread);
  op_hook::release_runner();
  thread.reset();
  OutputCache::clear();
  SimulatedStorage::end_all();
}

bool is_on() { return is_running.load(std::memory_order_relaxed); }
void pause(Made made) { ++pauses[static_cast<size_t>(made)]; }
void resume(Made made) { --pauses[static_cast<size_t>(made)]; }
bool is_paused(Made made) { return pauses[static_cast<size_t>(made)] > 0; }
const SimulationPolicy& policy() { return current_policy; }

std::vector<OpCoverage> coverage() {
  std::vector<OpCoverage> result;
  for (const OpTraits* traits : OpTraits::all()) {
    if (traits->calls == 0) continue;
    result.push_back({traits->name, traits->calls, traits->hits,
                      traits->kind == OpKind::Composite || traits->kind == OpKind::Decomposed});
  }
  std::sort(result.begin(), result.end(),
            [](const OpCoverage& a, const OpCoverage& b) { return a.op < b.op; });
  return result;
}

void set_locate(Locate locate) { locate_line = locate; }

std::string at_line() {
  const Locate locate = locate_line;
  const std::string line = locate != nullptr ? locate() : std::string();
  return line.empty() ? line : " (at " + line + ")";
}

}  // namespace tidegauge::simulation
