// SPDX-License-Identifier: BSD-3-Clause
#include "capture/fast/sole_listener.h"

#include <exception>
#include <mutex>
#include <tuple>

#include "capture/fast/known_memory.h"
#include "capture/fast/node_cache.h"
#include "capture/fast/sole.h"
#include "capture/hooks/moment_facts.h"
#include "capture/storages/capture_log.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"

namespace tidegauge::fast {
namespace {

constinit bool is_known_memory_plugged = false;
constinit bool is_sole_plugged = false;

void listeners_changed(const Listeners& listeners) {
  known_memory.clear();
  // Stopped listeners need frees, too, so there must be no other listener at all.
  CaptureListener* only = listeners.all().size() == 1 ? listeners.all().front() : nullptr;
  const bool is_sole =
      is_sole_plugged && only != nullptr && only->is_started() && only->state().log != nullptr;
  sole = is_sole ? SoleListener{only, only->state().log} : SoleListener{};
}

/// Reports the birth and returns true, or returns false without effect. The lock must be held.
[[gnu::always_inline]] inline bool report_birth(const OpWatch& watch, const at::Tensor& result) {
  const OpFacts& facts = watch.facts();
  if (sole.listener == nullptr || !facts.only_makes) return false;
  c10::StorageImpl* storage = storage_of(result);
  if (storage == nullptr || watch.running().gradient_listeners != 0) return false;
  StorageRegistry& registry = StorageRegistry::get();
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (!registry.is_usual(*storage, data)) return false;
  RegisteredStorage& record = registry.register_fresh(*storage, data);
  record.known_epoch = registry.listeners().epoch();
  if (is_known_memory_plugged) [[likely]]
    known_memory.add(data.get());
  if (!sole.log->has_room()) [[unlikely]]
    sole.listener->make_room();
  sole.log->append_birth(record, result.unsafeGetTensorImpl(),
                         moment::birth_facts(watch.running().task), op_id(facts), moment::stream());
  return true;
}

/// The deleter that replaces the one of torch's own CPU allocator.
void free_usual(void* data) {
  StorageRegistry& registry = StorageRegistry::get();
  const bool by_backward = is_in_backward();
  {
    const std::lock_guard lock(registry.mutex());
    RegisteredStorage* found = registry.memory().find(data);
    if (found != nullptr && sole.listener != nullptr && PendingFrees::of_this_thread().depth == 0)
        [[likely]] {
      const StorageId id = found->id;
      registry.memory().erase(found);
      if (!sole.log->has_room()) [[unlikely]]
        sole.listener->make_room();
      sole.log->append_free(id, by_backward);
    } else {
      std::ignore = registry.cpu_deleter().end(found);
    }
  }
  registry.cpu_deleter().free_usual(data);
}

}  // namespace

constinit KnownMemory known_memory;

void finish(OpWatch& watch, const at::Tensor& result) noexcept {
  OpWatch::Results results(watch);
  try {
    if (report_birth(watch, result)) [[likely]]
      return;
  } catch (const std::exception& error) {
    OpWatch::note_failure(error.what());
  }
  results.observe(result, 0);
}

void plug_known_memory(bool is_enabled) {
  const auto lock = StorageRegistry::lock();
  is_known_memory_plugged = is_enabled;
  StorageRegistry::get().set_knowledge_cache(is_enabled ? &known_memory : nullptr);
  StorageRegistry::get().listeners().set_epoch_observer(&listeners_changed);
}

void plug_sole_listener(bool is_enabled) {
  const auto lock = StorageRegistry::lock();
  is_sole_plugged = is_enabled;
  CpuDeleter::set_fast_free(&free_usual);
  CpuDeleter::use_fast_free(is_enabled);
  StorageRegistry::get().listeners().set_epoch_observer(&listeners_changed);
}

}  // namespace tidegauge::fast
