// SPDX-License-Identifier: BSD-3-Clause
//
// How a MemoryTracker follows backwards: which modules the running nodes belong to.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>

#include "capture/compat/torch_thread.h"
#include "capture/hooks/running_node.h"
#include "capture/storages/storage_capture.h"
#include "track/memory_tracker.h"

namespace tidegauge {

void MemoryTracker::begin_recompute() {
  const auto node = torch::autograd::get_current_node();
  if (!node) return;
  const auto lock = StorageCapture::lock();
  run_node(torch::autograd::get_current_graph_task_id(), *node, node->sequence_nr(),
           node->thread_id());
}

bool MemoryTracker::has_backward_elsewhere() {
  const uint64_t own = torch_thread::id();
  const auto lock = StorageCapture::lock();
  return std::any_of(scopes_.begin(), scopes_.end(),
                     [&](const BackwardScope& scope) { return scope.thread != own; });
}

void MemoryTracker::open_scope(int task, const torch::autograd::Node& node) {
  torch::autograd::Engine::get_default_engine().queue_callback(
      [weak = weak_from_this(), task, end = BackwardEnd()] {
        ToldNode::end_all();  // not only with the last of those who hold `end`
        if (const auto alive = weak.lock()) {
          const auto lock = StorageCapture::lock();
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
