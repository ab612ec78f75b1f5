// SPDX-License-Identifier: BSD-3-Clause
#include "tidegauge/mem_tracker.h"

#include <torch/nn/module.h>

#include <iostream>
#include <mutex>

#include "capture/hooks/op_hook.h"
#include "capture/modules/nn_module_registry.h"
#include "core/ledger/post_mortem_page.h"
#include "tidegauge/errors.h"
#include "track/mem_snapshots.h"
#include "track/nn_mem_tracker.h"

namespace tidegauge {
namespace {

void check_type(std::string_view type) {
  if (type == "current" || type == "peak") return;
  throw UsageError("invalid snapshot type '" + std::string(type) +
                   "' (expected \"current\" or \"peak\")");
}

}  // namespace

MemTracker::MemTracker(const MemTrackerOptions& options)
    : impl_(std::make_shared<NnMemTracker>(options)) {}

MemTracker::~MemTracker() {
  if (impl_->entry_count == 0) return;
  impl_->stop();
  impl_->engine().stop();
}

void MemTracker::enter() {
  const std::lock_guard lock(impl_->entry_mutex);
  if (impl_->entry_count == 0) {
    impl_->engine().start();
    impl_->start(impl_);
  }
  ++impl_->entry_count;
}

void MemTracker::exit() {
  const std::lock_guard lock(impl_->entry_mutex);
  if (impl_->entry_count == 0) {
    throw UsageError(
        "MemTracker::exit() was called on a tracker that is not entered; call enter() first");
  }
  if (--impl_->entry_count > 0) return;
  impl_->stop();
  impl_->engine().stop();
  if (impl_->recorder) impl_->recorder->flush();
}

void MemTracker::track_external(const torch::nn::Module& module) {
  impl_->label_module(module, LabelledBy::User);
}

void MemTracker::track_external(const torch::optim::Optimizer& optimizer) {
  impl_->engine().expect_optimizer();
  impl_->label_states(optimizer, LabelledBy::User);
}

void MemTracker::track_external(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  impl_->engine().label(tensor, Role::IsExternal, Since::Now, /*owner=*/{}, LabelledBy::User);
}

void MemTracker::track_external(std::string_view name, const torch::nn::Module& module) {
  if (name.empty() || name.find('.') != std::string_view::npos) {
    throw UsageError("invalid module name '" + std::string(name) +
                     "' (expected a non-empty name without dots)");
  }
  impl_->rename_root(module, name);
  track_external(module);
}

void MemTracker::track_external(std::string_view name, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  track_external(tensor);
  impl_->engine().name_owned(tensor, {}, name);
}

MemSnapshot MemTracker::get_tracker_snapshot(std::string_view type) const {
  check_type(type);
  impl_->observer.refresh();
  return to_mem_snapshot(type == "current" ? impl_->engine().current() : impl_->engine().peak());
}

BytesByDevice MemTracker::get_foreign_memory() const {
  BytesByDevice all;
  for (const auto& [device, bytes] : impl_->engine().foreign_bytes()) {
    all.emplace_back(to_torch(device), bytes);
  }
  return all;
}

BytesByDevice MemTracker::get_untracked_memory(std::string_view type) const {
  check_type(type);
  const Snapshot held = type == "current" ? impl_->engine().current() : impl_->engine().peak();
  BytesByDevice all;
  for (const DeviceSplit& entry : held.devices) {
    const int64_t bytes = entry.split[Category::Untracked];
    if (bytes > 0) all.emplace_back(to_torch(entry.device), bytes);
  }
  return all;
}

std::vector<ModMemStats> MemTracker::memory_tracking() const {
  impl_->observer.refresh();
  std::vector<ModMemStats> all;
  for (const ModuleId id : impl_->engine().modules()) {
    if (!NnModuleRegistry::get().is_alive(id)) continue;
    all.push_back(to_mod_mem_stats(impl_->engine().module_stats(id), impl_->activity->name(id)));
  }
  return all;
}

std::vector<UnitMemory> MemTracker::units() const {
  std::vector<UnitMemory> all;
  for (const UnitReport& unit : impl_->engine().units()) all.push_back(to_unit_memory(unit));
  return all;
}

void MemTracker::reset_mod_stats() { impl_->observer.reset_module_stats(); }

void MemTracker::display_snapshot(std::string_view type, std::string_view units) const {
  std::cout << render_snapshot(get_tracker_snapshot(type), units) << std::flush;
}

void MemTracker::display_modulewise_snapshots(int depth, std::string_view units) const {
  std::cout << render_modulewise_snapshots(memory_tracking(), depth, units) << std::flush;
}

std::string MemTracker::render_post_mortem() const {
  const std::shared_ptr<const PostMortem> last = impl_->engine().post_mortem();
  return last ? tidegauge::render_post_mortem(*last) : std::string();
}

int64_t MemTracker::anomaly_count() const { return impl_->engine().anomaly_count(); }
std::string MemTracker::first_anomaly() const { return impl_->engine().first_anomaly(); }

int64_t MemTracker::lost_event_count() const {
  return impl_->recorder ? static_cast<int64_t>(impl_->recorder->health().lost_events) : 0;
}

std::string MemTracker::first_loss() const {
  return impl_->recorder ? impl_->recorder->health().first_error : std::string();
}

int64_t MemTracker::failure_count() const { return impl_->engine().failures().count(); }
std::string MemTracker::first_failure() const { return impl_->engine().failures().first(); }

}  // namespace tidegauge
