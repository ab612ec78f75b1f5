// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/backward_watches.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace tidegauge {
namespace {

// A backward that fails leaves its records behind. At these limits the oldest record is dropped.
constexpr size_t kMaxRuns = 8;      // backwards of one call
constexpr size_t kMaxRunning = 64;  // graph tasks

}  // namespace

// See Note [Nothing dies under the lock] in module_activity.cpp.

void BackwardWatches::set_hooks(BackwardHooks hooks) {
  const std::lock_guard lock(mutex_);
  std::swap(hooks_, hooks);
  has_hooks_ = static_cast<bool>(hooks_);
}

std::shared_ptr<BackwardWatch> BackwardWatches::add(const CallRef& call) {
  auto watch = std::make_shared<BackwardWatch>();
  watch->call = call;
  watch->module = call.block->module(call.call);
  const std::lock_guard lock(mutex_);
  watch->serial = ++last_serial_;
  return watch;
}

void BackwardWatches::add_input(const std::shared_ptr<BackwardWatch>& watch,
                                const at::Tensor& input) {
  const auto self = self_.lock();
  const std::lock_guard lock(mutex_);
  watch_input(self, input, watch);
}

void BackwardWatches::add_output(const std::shared_ptr<BackwardWatch>& watch,
                                 const at::Tensor& output) {
  const auto self = self_.lock();
  const std::lock_guard lock(mutex_);
  watch_output(self, output, watch);
}

void BackwardWatches::on_gradient(WatchedGradient& watched, const at::Tensor& grad) {
  std::vector<std::shared_ptr<BackwardWatch>> begins;
  std::vector<std::pair<std::shared_ptr<BackwardWatch>, size_t>> arrivals;
  {
    const std::lock_guard lock(mutex_);
    // An outer module leaves after its inner modules. So the reverse order begins with the
    // outermost.
    begins.assign(watched.outputs.rbegin(), watched.outputs.rend());
    for (const auto& input : watched.inputs) {
      if (auto watch = input.watch.lock()) arrivals.emplace_back(std::move(watch), input.slot);
    }
  }
  const int task = torch::autograd::get_current_graph_task_id();
  for (const auto& watch : begins) begin_backward(watch, task, grad);
  for (const auto& [watch, slot] : arrivals) add_input_gradient(watch, task, slot, grad);
}

void BackwardWatches::begin_backward(const std::shared_ptr<BackwardWatch>& watch, int task,
                                     const at::Tensor& grad) {
  std::function<void(ModuleId, const at::Tensor&)> begin;
  std::vector<std::shared_ptr<BackwardWatch>> forgotten;
  BackwardWatch::Run oldest;
  {
    const std::lock_guard lock(mutex_);
    if (!hooks_ || watch->find_run(task) != nullptr) return;
    if (watch->runs.size() == kMaxRuns) {
      oldest = std::move(watch->runs.front());
      watch->runs.erase(watch->runs.begin());
    }
    watch->runs.push_back({.task = task,
                           .expected = count_reached(watch->input_nodes),
                           .grads = std::vector<at::Tensor>(watch->input_nodes.size())});
    auto& running = running_[task];
    if (running.empty()) {
      torch::autograd::Engine::get_default_engine().queue_callback([weak = self_, task] {
        if (const auto alive = weak.lock()) alive->finish_task(task);
      });
    }
    running.push_back(watch);
    if (running_.size() > kMaxRunning) {
      forgotten = std::move(running_.begin()->second);
      running_.erase(running_.begin());
    }
    begin = hooks_.begin;
  }
  if (begin) run_within_(watch->call, [&] { begin(watch->module, grad); });
}

void BackwardWatches::add_input_gradient(const std::shared_ptr<BackwardWatch>& watch, int task,
                                         size_t slot, const at::Tensor& grad) {
  std::vector<at::Tensor> grads;
  {
    const std::lock_guard lock(mutex_);
    BackwardWatch::Run* run = watch->find_run(task);
    // No run: the gradient did not come through the module, or there are no hooks.
    if (run == nullptr || run->has_ended) return;
    run->grads[slot] = grad;
    if (++run->seen < run->expected) return;
    run->has_ended = true;
    grads = std::exchange(run->grads, {});
  }
  run_end_hook(watch, &grads);
}

void BackwardWatches::run_end_hook(const std::shared_ptr<BackwardWatch>& watch,
                                   const std::vector<at::Tensor>* grads) {
  std::function<void(ModuleId, const std::vector<at::Tensor>*)> end;
  {
    const std::lock_guard lock(mutex_);
    end = hooks_.end;
  }
  if (end) run_within_(watch->call, [&] { end(watch->module, grads); });
}

void BackwardWatches::finish_task(int task) {
  std::vector<std::shared_ptr<BackwardWatch>> watches;
  std::vector<BackwardWatch::Run> runs;
  std::vector<std::shared_ptr<BackwardWatch>> unfinished;
  {
    const std::lock_guard lock(mutex_);
    const auto it = running_.find(task);
    if (it == running_.end()) return;
    watches = std::move(it->second);
    running_.erase(it);
    for (const auto& watch : watches) {
      BackwardWatch::Run* run = watch->find_run(task);
      if (run == nullptr) continue;
      if (!run->has_ended) unfinished.push_back(watch);
      runs.push_back(std::move(*run));
      watch->runs.erase(watch->runs.begin() + (run - watch->runs.data()));
    }
  }
  // Calls whose inputs need no gradient end with the backward, in the reverse order of their
  // forwards.
  std::sort(unfinished.begin(), unfinished.end(),
            [](const auto& a, const auto& b) { return a->serial > b->serial; });
  for (const auto& watch : unfinished) run_end_hook(watch, nullptr);
}

}  // namespace tidegauge
