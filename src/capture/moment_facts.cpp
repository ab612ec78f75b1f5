// SPDX-License-Identifier: BSD-3-Clause
#include "capture/moment_facts.h"

#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <vector>

#include "capture/thread_local.h"
#include "core/event.h"

namespace tidegauge::moment {
namespace {

struct Recompute {
  int task;
  bool keeps_graph;
};

std::atomic<uint64_t> session{0};

thread_local std::vector<Recompute> recomputes;
/// Apart from the above, because they need no construction: looked at in every birth.
struct Counts {
  uint64_t session = 0;
  int recomputes = 0;
  int optimizer_steps = 0;
  int open_modules = 0;
  StreamId stream{};
};

Counts& this_thread() {
  Counts& counts = ThreadLocal<Counts>::get();
  // Who left within a step or a module was not told of its end.
  const uint64_t now = session.load(std::memory_order_relaxed);
  if (counts.session != now) {
    counts = {.session = now, .stream = counts.stream};
    recomputes.clear();
  }
  return counts;
}

}  // namespace

void begin_session() { ++session; }

void begin_recompute(bool keeps_graph) {
  ++this_thread().recomputes;
  recomputes.push_back({torch::autograd::get_current_graph_task_id(), keeps_graph});
}

void end_recompute() {
  Counts& counts = this_thread();
  if (counts.recomputes == 0) return;
  recomputes.pop_back();
  --counts.recomputes;
}

bool in_recompute() {
  if (this_thread().recomputes == 0) return false;
  const Recompute& last = recomputes.back();
  return !last.keeps_graph || last.task == torch::autograd::get_current_graph_task_id();
}

void begin_optimizer_step() { ++this_thread().optimizer_steps; }

void end_optimizer_step() {
  Counts& counts = this_thread();
  if (counts.optimizer_steps > 0) --counts.optimizer_steps;
}

bool in_optimizer_step() { return this_thread().optimizer_steps > 0; }

void begin_module() { ++this_thread().open_modules; }

void end_module() {
  Counts& counts = this_thread();
  if (counts.open_modules > 0) --counts.open_modules;
}

void set_stream(StreamId stream) { ThreadLocal<Counts>::get().stream = stream; }
StreamId stream() { return ThreadLocal<Counts>::get().stream; }

uint8_t birth_facts(int task) {
  uint8_t facts = 0;
  const Counts& counts = this_thread();
  if (task != -1) {
    facts |= kInBackward;
    if (counts.recomputes > 0 && in_recompute()) facts |= kInRecompute;
  } else if (counts.optimizer_steps > 0 && counts.open_modules == 0) {
    facts |= kInOptimizerStep;
  }
  return facts;
}

}  // namespace tidegauge::moment
