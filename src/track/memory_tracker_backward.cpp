// SPDX-License-Identifier: BSD-3-Clause
//
// How a MemoryTracker follows backwards: which modules the running nodes belong to.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>

#include "capture/compat/torch_thread.h"
#include "capture/hooks/running_node.h"
#include "capture/storages/storage_registry.h"
#include "track/memory_tracker.h"

namespace tidegauge {

void MemoryTracker::begin_recompute() {
  const auto node = torch::autograd::get_current_node();
  if (!node) return;
  const auto lock = StorageRegistry::lock();
  node_runs(torch::autograd::get_current_graph_task_id(), *node);
}

bool MemoryTracker::has_backward_elsewhere() {
  const uint64_t own = torch_thread::id();
  const auto lock = StorageRegistry::lock();
  return std::any_of(scopes_.begin(), scopes_.end(),
                     [&](const BackwardScope& scope) { return scope.thread != own; });
}

void MemoryTracker::node_runs(int task, const torch::autograd::Node& node) {
  const uint64_t thread = torch_thread::id();
  const uint64_t sequence = node.sequence_nr();
  for (size_t i = scopes_.size(); i > 0; --i) {
    BackwardScope& scope = scopes_[i - 1];
    if (scope.task != task || scope.thread != thread) continue;
    if (sequence == UINT64_MAX) return;
    const bool is_there =
        scope.place.maker == node.thread_id() && scope.place.range.contains(sequence);
    if (!is_there) move_to(scope, &node);
    return;
  }
  open_scope(task, node);
}

void MemoryTracker::open_scope(int task, const torch::autograd::Node& node) {
  torch::autograd::Engine::get_default_engine().queue_callback(
      [weak = weak_from_this(), task, end = BackwardEnd()] {
        forget_running_nodes();  // at once, not when the last copy of `end` dies
        if (const auto alive = weak.lock()) {
          const auto lock = StorageRegistry::lock();
          alive->close_task(task);
        }
      });
  scopes_.push_back({task, torch_thread::id(), {}});
  if (node.sequence_nr() != UINT64_MAX) move_to(scopes_.back(), &node);
}

void MemoryTracker::move_to(BackwardScope& scope, const torch::autograd::Node* node) {
  moves_.clear();
  modules_->move(scope.place, node, moves_);
  if (moves_.empty()) return;
  look_around();
  ++version_;
  for (const auto& [module, enters] : moves_) {
    const bool is_dead = !dead_.empty() && dead_.contains(module);
    if (is_dead && (enters || !ledger().open_calls().is_open(module, Phase::Backward))) continue;
    append_call(enters ? EventKind::ModuleEnter : EventKind::ModuleExit, module, Phase::Backward);
    if (is_dead) apply(events::module_gone(origin(), module));
  }
}

void MemoryTracker::close_scopes_of_thread() {
  const uint64_t thread = torch_thread::id();
  for (size_t i = scopes_.size(); i > 0; --i) {
    if (scopes_[i - 1].thread != thread) continue;
    move_to(scopes_[i - 1], nullptr);
    scopes_.erase(scopes_.begin() + static_cast<std::ptrdiff_t>(i - 1));
  }
}

void MemoryTracker::close_task(int task) {
  found_in_backward_.clear();
  for (size_t i = scopes_.size(); i > 0; --i) {
    if (scopes_[i - 1].task != task) continue;
    move_to(scopes_[i - 1], nullptr);
    scopes_.erase(scopes_.begin() + static_cast<std::ptrdiff_t>(i - 1));
  }
}

}  // namespace tidegauge
