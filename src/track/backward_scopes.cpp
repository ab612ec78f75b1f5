// SPDX-License-Identifier: BSD-3-Clause
#include "track/backward_scopes.h"

#include <algorithm>

#include "capture/compat/autograd_node.h"
#include "capture/compat/torch_thread.h"
#include "capture/hooks/op_stream.h"
#include "track/tracked_events.h"

namespace tidegauge {
namespace {

// Limits the memory for dead modules. At the limit all of them are forgotten: a graph that has not
// run its backward by then reports its dead modules like living ones.
constexpr size_t kMaxDead = 4096;

}  // namespace

bool BackwardScopes::any_elsewhere() const {
  const uint64_t own = torch_thread::id();
  return std::any_of(scopes_.begin(), scopes_.end(),
                     [&](const Scope& scope) { return scope.thread != own; });
}

bool BackwardScopes::move_to(int task, const torch::autograd::Node& node) {
  const uint64_t thread = torch_thread::id();
  const uint64_t sequence = node.sequence_nr();
  for (size_t i = scopes_.size(); i > 0; --i) {
    Scope& scope = scopes_[i - 1];
    if (scope.task != task || scope.thread != thread) continue;
    if (sequence == UINT64_MAX) return true;
    const bool is_there =
        scope.place.maker == node.thread_id() && scope.place.range.contains(sequence);
    if (!is_there) move(scope, &node);
    return true;
  }
  return false;
}

void BackwardScopes::open(int task, const torch::autograd::Node& node) {
  scopes_.push_back({task, torch_thread::id(), {}});
  if (node.sequence_nr() != UINT64_MAX) move(scopes_.back(), &node);
}

void BackwardScopes::move(Scope& scope, const torch::autograd::Node* node) {
  moves_.clear();
  modules_->move(scope.place, node, moves_);
  if (moves_.empty()) return;
  events_.set_moment();
  for (const auto& [module, enters] : moves_) {
    const bool is_dead = !dead_.empty() && dead_.contains(module);
    if (is_dead && (enters || !events_.apply_all().open_calls().is_open(module, Phase::Backward))) {
      continue;
    }
    op_stream::move_module(*modules_, module, enters);
    events_.append_call(enters ? EventKind::ModuleEnter : EventKind::ModuleExit, module,
                        Phase::Backward);
    if (is_dead) events_.apply(events::module_gone(events_.origin(), module));
  }
}

void BackwardScopes::close_in_thread() {
  const uint64_t thread = torch_thread::id();
  for (size_t i = scopes_.size(); i > 0; --i) {
    if (scopes_[i - 1].thread != thread) continue;
    move(scopes_[i - 1], nullptr);
    scopes_.erase(scopes_.begin() + static_cast<std::ptrdiff_t>(i - 1));
  }
}

void BackwardScopes::close(int task) {
  found_.clear();
  for (size_t i = scopes_.size(); i > 0; --i) {
    if (scopes_[i - 1].task != task) continue;
    move(scopes_[i - 1], nullptr);
    scopes_.erase(scopes_.begin() + static_cast<std::ptrdiff_t>(i - 1));
  }
}

void BackwardScopes::forget_module(ModuleId module) {
  if (dead_.size() == kMaxDead) dead_.clear();
  dead_.insert(module);
}

}  // namespace tidegauge
