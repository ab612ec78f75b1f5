// SPDX-License-Identifier: BSD-3-Clause
#include "capture/fast/sole_listener.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <tuple>

#include "capture/fast/known_memory.h"
#include "capture/fast/node_cache.h"
#include "capture/hooks/op_watch.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"

namespace tidegauge::fast {
namespace {

struct alignas(64) State {
  CaptureListener* sole = nullptr;  // null: the general path
  bool is_known_memory_plugged = false;
  bool is_sole_plugged = false;
};
constinit State state;

void listeners_changed(const Listeners& listeners) {
  known_memory.clear();
  // A stopped listener needs frees, too, so it must be the only one.
  CaptureListener* only = listeners.all().size() == 1 ? listeners.all().front() : nullptr;
  const bool is_sole = state.is_sole_plugged && only != nullptr && only->is_started() &&
                       only->state().needs_only_events;
  state.sole = is_sole ? only : nullptr;
}

/// See OpWatch::FastBirth.
bool report_birth(const at::Tensor& result, uint8_t birth_facts, const OpFacts& facts) {
  c10::StorageImpl* storage = storage_of(result);
  if (state.sole == nullptr || storage == nullptr) return false;
  StorageRegistry& registry = StorageRegistry::get();
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (!registry.is_usual(*storage, data)) return false;
  RegisteredStorage& record = registry.register_fresh(*storage, data);
  record.known_epoch = registry.listeners().epoch();
  if (state.is_known_memory_plugged) known_memory.add(data.get());
  state.sole->storage_born(record.id, record.size_bytes, record.device,
                           result.unsafeGetTensorImpl(), birth_facts, op_id(facts));
  return true;
}

/// The deleter of memory from torch's own allocator.
void free_usual(void* data) {
  StorageRegistry& registry = StorageRegistry::get();
  const bool by_backward = is_in_backward();
  {
    const std::lock_guard lock(registry.mutex());
    RegisteredStorage* found = registry.memory().find(data);
    if (found != nullptr && state.sole != nullptr && PendingFrees::of_this_thread().depth == 0)
        [[likely]] {
      const StorageId id = found->id;
      registry.memory().erase(found);
      state.sole->storage_freed(id, by_backward);
    } else {
      std::ignore = registry.cpu_deleter().end(found);
    }
  }
  registry.cpu_deleter().free_usual(data);
}

}  // namespace

constinit KnownMemory known_memory;

void plug_known_memory(bool is_enabled) {
  const auto lock = StorageRegistry::lock();
  state.is_known_memory_plugged = is_enabled;
  StorageRegistry::get().set_knowledge_cache(is_enabled ? &known_memory : nullptr);
  StorageRegistry::get().listeners().set_epoch_observer(&listeners_changed);
}

void plug_sole_listener(bool is_enabled) {
  const auto lock = StorageRegistry::lock();
  state.is_sole_plugged = is_enabled;
  CpuDeleter::set_fast_free(&free_usual);
  CpuDeleter::use_fast_free(is_enabled);
  OpWatch::set_fast_birth(is_enabled ? &report_birth : nullptr);
  StorageRegistry::get().listeners().set_epoch_observer(&listeners_changed);
}

}  // namespace tidegauge::fast
