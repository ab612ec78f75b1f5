// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/storages/storage_registry.h"

namespace tidegauge {

/// A listener that logs its notifications as text: "born 12", "freed 12 by backward".
class ListenerLog final : public CaptureListener {
 public:
  explicit ListenerLog(bool counts_allocations = false) {
    state_ = {.is_started = true, .counts_allocations = counts_allocations};
    const auto lock = StorageRegistry::lock();
    StorageRegistry::get().listeners().add(this);
  }
  ~ListenerLog() {
    const auto lock = StorageRegistry::lock();
    StorageRegistry::get().listeners().remove(this);
  }
  ListenerLog(const ListenerLog&) = delete;
  ListenerLog& operator=(const ListenerLog&) = delete;

  void storage_born(const ObservedStorage& observed, uint8_t, OpId) override {
    add("born", observed.id);
  }
  void storage_found(const ObservedStorage& observed, uint8_t, OpId) override {
    add("found", observed.id);
  }
  void storage_freed(StorageId id, bool by_backward) override {
    add("freed", id, by_backward ? " by backward" : "");
  }
  void storage_resized(StorageId id, int64_t size_bytes, StorageId) override {
    add("resized", id, " to " + std::to_string(size_bytes));
  }
  void make_room() override {}
  void memory_allocated(StorageId id, Device, int64_t size_bytes) override {
    add("allocated", id, " of " + std::to_string(size_bytes));
  }
  void node_runs(int, const torch::autograd::Node&) override {}
  void thread_left_backward() override {}
  bool knows_parameter(const at::Tensor&) override { return false; }
  bool learn_parameter(const at::Tensor&) override { return false; }
  void gradient_accumulated(StorageId id) override { add("gradient", id); }
  FailureReport allocation_failed(const FailedAllocation&, OpId, const std::string&) override {
    return {};
  }
  std::shared_ptr<CaptureListener> keep_alive() override { return nullptr; }

  static std::string line(const std::string& what, StorageId id, const std::string& more = "") {
    return what + " " + std::to_string(id.value) + more;
  }

  std::vector<std::string> lines;

 private:
  void add(const std::string& what, StorageId id, const std::string& more = "") {
    lines.push_back(line(what, id, more));
  }
};

inline c10::StorageImpl& storage_impl(const at::Tensor& tensor) {
  return *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

inline ObservedStorage observe(const at::Tensor& tensor, bool even_empty = false) {
  const auto lock = StorageRegistry::lock();
  return StorageRegistry::get().observe(&storage_impl(tensor), even_empty);
}

}  // namespace tidegauge
