// SPDX-License-Identifier: BSD-3-Clause
//
// The queries of a MemEngine.
#include "capture/hooks/op_hook.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"
#include "track/mem_engine.h"

namespace tidegauge {

Snapshot MemEngine::current() {
  op_hook::restore_in_this_thread();
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().poll_all();
  return events_.apply_all().current();
}

Snapshot MemEngine::peak() {
  op_hook::restore_in_this_thread();
  const auto lock = StorageRegistry::lock();
  return read_peak();
}

Snapshot MemEngine::read_peak() { return was_started_ ? events_.apply_all().peak() : Snapshot{}; }

std::map<Device, int64_t> MemEngine::foreign_bytes() {
  std::map<Device, int64_t> sums;
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().poll_all();
  StorageRegistry::get().weak_references().visit_foreign([&](const RegisteredStorage& each) {
    const bool counts = each.size_bytes > 0 && events_.apply_all().find_storage(each.id);
    if (counts) sums[each.device] += each.size_bytes;
  });
  return sums;
}

std::vector<ModuleId> MemEngine::modules() {
  const auto lock = StorageRegistry::lock();
  return events_.apply_all().modules();
}

ModuleStats MemEngine::module_stats(ModuleId module) {
  const auto lock = StorageRegistry::lock();
  return events_.apply_all().module_stats(module);
}

uint64_t MemEngine::version() {
  const auto lock = StorageRegistry::lock();
  return events_.read_module_version();
}

std::shared_ptr<const PostMortem> MemEngine::post_mortem() {
  const auto lock = StorageRegistry::lock();
  return post_mortem_;
}

int64_t MemEngine::anomaly_count() {
  const auto lock = StorageRegistry::lock();
  return static_cast<int64_t>(events_.apply_all().anomalies().total());
}

std::string MemEngine::first_anomaly() {
  const auto lock = StorageRegistry::lock();
  return std::string(events_.apply_all().anomalies().first());
}

size_t MemEngine::footprint_bytes() {
  const auto lock = StorageRegistry::lock();
  return events_.footprint_bytes() + StorageRegistry::get().storage_count() * 128;
}

bool MemEngine::has_backward_elsewhere() {
  const auto lock = StorageRegistry::lock();
  return backwards_.any_elsewhere();
}

std::optional<Category> MemEngine::read_category(const at::Tensor& tensor) {
  const auto lock = StorageRegistry::lock();
  std::optional<Category> category;
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const auto known = events_.apply_all().find_storage(StorageRegistry::get().find(*storage));
    if (known && !category) category = known->category;
  });
  return category;
}

}  // namespace tidegauge
