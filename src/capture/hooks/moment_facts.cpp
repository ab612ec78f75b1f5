// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/moment_facts.h"

#include <torch/csrc/autograd/graph_task.h>

#include <vector>

namespace tidegauge::moment {
namespace {

struct Recompute {
  int task;
  bool keeps_graph;
};

thread_local std::vector<Recompute> recomputes;

}  // namespace

void reset_counts(Counts& counts, uint64_t session) {
  counts = {.session = session, .stream = counts.stream};
  recomputes.clear();
}

void begin_session() { ++at_every_op.session; }

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

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

void begin_closure() {
  Counts& counts = this_thread();
  if (counts.closures < counts.optimizer_steps) ++counts.closures;
}

void end_closure() {
  Counts& counts = this_thread();
  if (counts.closures > 0) --counts.closures;
}

bool in_optimizer_step() {
  const Counts& counts = this_thread();
  return counts.optimizer_steps > counts.closures;
}

void set_stream(StreamId stream) { ThreadLocal<Counts>::get().stream = stream; }

}  // namespace tidegauge::moment
