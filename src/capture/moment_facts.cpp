// SPDX-License-Identifier: BSD-3-Clause
#include "capture/moment_facts.h"

#include <torch/csrc/autograd/graph_task.h>

#include <vector>

#include "core/event.h"

namespace tidegauge::moment {
namespace {

struct Recompute {
  int task;
  bool keeps_graph;
};

thread_local std::vector<Recompute> recomputes;
/// Apart from the above, because they need no construction: looked at in every birth.
struct Counts {
  int recomputes = 0;
  int optimizer_steps = 0;
  int open_modules = 0;
};
thread_local constinit Counts counts{};

}  // namespace

void begin_recompute(bool keeps_graph) {
  recomputes.push_back({torch::autograd::get_current_graph_task_id(), keeps_graph});
  ++counts.recomputes;
}

void end_recompute() {
  if (counts.recomputes == 0) return;
  recomputes.pop_back();
  --counts.recomputes;
}

bool in_recompute() {
  if (counts.recomputes == 0) return false;
  const Recompute& last = recomputes.back();
  return !last.keeps_graph || last.task == torch::autograd::get_current_graph_task_id();
}

void begin_optimizer_step() { ++counts.optimizer_steps; }

void end_optimizer_step() {
  if (counts.optimizer_steps > 0) --counts.optimizer_steps;
}

bool in_optimizer_step() { return counts.optimizer_steps > 0; }

void begin_module() { ++counts.open_modules; }

void end_module() {
  if (counts.open_modules > 0) --counts.open_modules;
}

uint8_t birth_facts() {
  uint8_t facts = 0;
  if (torch::autograd::get_current_graph_task_id() != -1) {
    facts |= kInBackward;
    if (in_recompute()) facts |= kInRecompute;
  } else if (counts.optimizer_steps > 0 && counts.open_modules == 0) {
    facts |= kInOptimizerStep;
  }
  return facts;
}

}  // namespace tidegauge::moment
