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
thread_local int optimizer_steps = 0;
thread_local int open_modules = 0;

}  // namespace

void begin_recompute(bool keeps_graph) {
  recomputes.push_back({torch::autograd::get_current_graph_task_id(), keeps_graph});
}

void end_recompute() {
  if (!recomputes.empty()) recomputes.pop_back();
}

bool in_recompute() {
  if (recomputes.empty()) return false;
  const Recompute& last = recomputes.back();
  return !last.keeps_graph || last.task == torch::autograd::get_current_graph_task_id();
}

void begin_optimizer_step() { ++optimizer_steps; }

void end_optimizer_step() {
  if (optimizer_steps > 0) --optimizer_steps;
}

bool in_optimizer_step() { return optimizer_steps > 0; }

void begin_module() { ++open_modules; }

void end_module() {
  if (open_modules > 0) --open_modules;
}

uint8_t birth_facts() {
  uint8_t facts = 0;
  if (torch::autograd::get_current_graph_task_id() != -1) {
    facts |= kInBackward;
    if (in_recompute()) facts |= kInRecompute;
  } else if (optimizer_steps > 0 && open_modules == 0) {
    facts |= kInOptimizerStep;
  }
  return facts;
}

}  // namespace tidegauge::moment
