// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/session.h"

#include <algorithm>
#include <mutex>

#include "capture/compat/op_route.h"
#include "capture/hooks/op_hook.h"
#include "simulate/known_values.h"
#include "simulate/op_traits.h"
#include "simulate/output_cache.h"
#include "simulate/product_memory.h"
#include "simulate/simulated_tensor.h"
#include "simulate/simulator.h"
#include "tidegauge/errors.h"

namespace tidegauge::simulation {
namespace {

std::mutex mutex;
op_hook::Thread thread;

}  // namespace

void start(const SimulationPolicy& policy, const std::vector<std::string>& decomposed) {
  const std::lock_guard lock(mutex);
  if (is_on()) {
    throw UsageError(
        "a simulation is already running in this process (only one at a time is supported); leave "
        "it before you start another");
  }
  if (!(policy.mask_fraction >= 0 && policy.mask_fraction <= 1)) {
    throw UsageError("invalid mask_fraction " + std::to_string(policy.mask_fraction) +
                     " (expected the fraction of elements that a mask selects, from 0 to 1)");
  }
  OpTraits::reset(decomposed);
  OutputCache::clear();
  known_values::reset_generator();
  product_memory::reset();
  thread = op_hook::start_in_this_thread();
  try {
    op_route::require_carried_key();
  } catch (...) {
    op_hook::stop_in(thread);
    thread.reset();
    throw;
  }
  op_hook::set_runner(&run);
  op_hook::hold_runner();
  set_on(policy);
}

void stop() {
  const std::lock_guard lock(mutex);
  if (!is_on()) return;
  set_off();
  op_hook::stop_in(thread);
  op_hook::release_runner();
  thread.reset();
  OutputCache::clear();
  SimulatedStorage::end_all();
}

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

}  // namespace tidegauge::simulation
