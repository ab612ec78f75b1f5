// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/session.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "capture/op_hook.h"
#include "simulate/op_traits.h"
#include "simulate/output_cache.h"
#include "simulate/simulator.h"
#include "tidegauge/errors.h"

namespace tidegauge::simulation {
namespace {

std::mutex mutex;
std::atomic<bool> is_running{false};
Policy current_policy;
op_hook::Thread thread;
std::atomic<Locate> locate_line{nullptr};
thread_local constinit int pauses = 0;

}  // namespace

void start(const Policy& policy, const std::vector<std::string>& decomposed) {
  const std::lock_guard lock(mutex);
  if (is_running) {
    throw UsageError(
        "a simulation is on already in this process, and there can be only one; leave it before "
        "the next one is entered");
  }
  OpTraits::reset(decomposed);
  OutputCache::clear();
  current_policy = policy;
  thread = op_hook::start_in_this_thread();
  op_hook::set_runner(&run);
  is_running = true;
}

void stop() {
  const std::lock_guard lock(mutex);
  if (!is_running) return;
  is_running = false;
  op_hook::stop_in(thread);
  thread.reset();
  OutputCache::clear();
}

bool is_on() { return is_running.load(std::memory_order_relaxed); }
void pause() { ++pauses; }
void resume() { --pauses; }
bool is_paused() { return pauses > 0; }
const Policy& policy() { return current_policy; }

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

std::string locate() {
  const Locate ask = locate_line;
  return ask != nullptr ? ask() : std::string();
}

}  // namespace tidegauge::simulation
