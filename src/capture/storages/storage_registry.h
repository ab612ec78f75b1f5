// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <mutex>
#include <tuple>

#include "capture/compat/torch_device.h"
#include "capture/storages/cpu_deleter.h"
#include "capture/storages/device_trace_watch.h"
#include "capture/storages/knowledge_cache.h"
#include "capture/storages/listeners.h"
#include "capture/storages/own_context.h"
#include "capture/storages/pending_frees.h"
#include "capture/storages/weak_references.h"

namespace tidegauge {

/// The table of all storages that were observed or allocated while there was a listener. It gives
/// each storage an id, watches for its end (end_watch.h), and notifies the listeners.
///
/// One per process, never destroyed, because deleters outlive trackers and the interpreter. One
/// lock guards it, the listeners and their ledgers. While it is held, no tensor is destroyed and no
/// code waits for the GIL.
class StorageRegistry final : EndHandler {
 public:
  static StorageRegistry& get() { return *instance_; }
  SpinLock& mutex() { return mutex_; }
  [[nodiscard]] static std::lock_guard<SpinLock> lock() { return std::lock_guard(get().mutex_); }

  // The lock must be held for the functions below.

  Listeners& listeners() { return listeners_; }
  /// The id of the storage; none if it is not registered.
  StorageId find(c10::StorageImpl& storage);
  /// Registers the storage if it is new. `even_empty`: even if it has no bytes, so that it can have
  /// a label. The caller notifies the listeners and then calls `mark_known`.
  ObservedStorage observe(c10::StorageImpl* storage, bool even_empty = false);
  /// Registers the storage of a fake tensor. Listeners of `fake_mode` count it on `device`.
  void register_fake(c10::StorageImpl* storage, c10::Device device, const void* fake_mode);
  /// Call after every started listener was notified of the storage.
  void mark_known(const ObservedStorage& observed);

  /// The id of new memory.
  StorageId next_id() { return StorageId(++last_id_); }
  /// Call when the CPU allocator has allocated this memory. Replaces its deleter.
  void record_allocation(c10::DataPtr& data, int64_t size_bytes);
  /// Call for each entry of a device allocator's trace.
  void record_device(const DeviceTraceEntry& entry);

  /// Checks up to `count` weak references.
  void poll(size_t count) {
    if (!weak_references_.empty()) [[unlikely]]
      weak_references_.poll(count);
  }
  void poll_all() { poll(weak_references_.size()); }

  /// Call around an op of this thread. The frees of the op are reported at its end.
  static PendingFrees& begin_op() {
    PendingFrees& pending = PendingFrees::of_this_thread();
    ++pending.depth;
    return pending;
  }
  /// Call if the op has written to `storage`: it was resized if the op has freed its memory.
  void note_written(PendingFrees& pending, c10::StorageImpl* storage);
  /// Call when the op has ended and its births are reported.
  void end_op(PendingFrees& pending) {
    --pending.depth;
    if (pending.freed != nullptr && pending.depth == 0) [[unlikely]]
      report_pending(pending);
  }
  /// Call at the end of a resize that started with `begin_op`. Returns false if the resize freed no
  /// registered memory; then the storage may be new.
  bool finish_resize(PendingFrees& pending, c10::StorageImpl* storage);

  CpuDeleter& cpu_deleter() { return cpu_deleter_; }
  const WeakReferences& weak_references() const { return weak_references_; }
  size_t storage_count() const { return memory_.size() + weak_references_.size(); }

  /// Removes our context from a meta storage, which a weak reference watches from now on. The lock
  /// must not be held.
  void release_context(c10::StorageImpl* storage);

  // The functions below are for capture/fast.

  void set_knowledge_cache(KnowledgeCache* cache) { cache_ = cache; }
  using IsInBackward = bool (*)();  // true if a backward runs in this thread
  static bool is_in_graph_task();
  void set_is_in_backward(IsInBackward query) { is_in_backward_ = query; }
  MemoryTable& memory() { return memory_; }
  /// True for fresh memory of torch's own allocator, which most ops return.
  bool is_usual(const c10::StorageImpl& storage, const c10::DataPtr& data) const {
    return cpu_deleter_.is_usual(data) && storage.nbytes() > 0 && weak_references_.empty();
  }
  [[gnu::always_inline]] RegisteredStorage& register_fresh(const c10::StorageImpl& storage,
                                                           c10::DataPtr& data) {
    const c10::DeleterFnPtr deleter = data.get_deleter();
    std::ignore = cpu_deleter_.replace_deleter(data);  // true, because no other thread has it yet
    RegisteredStorage& record = register_memory(data.get());
    record.size_bytes = static_cast<int64_t>(storage.nbytes());
    record.device = to_device(storage.device());
    record.storage = &storage;
    record.deleter = deleter;
    return record;
  }

 private:
  StorageRegistry() = default;
  void memory_ended(const RegisteredStorage& ended) override;
  void storage_ended(const RegisteredStorage& ended) override { report_freed(ended.id); }
  void report_freed(StorageId id);
  [[gnu::noinline, gnu::cold]] void report_pending(PendingFrees& pending);

  /// Inserts a record with a new id.
  [[gnu::always_inline]] RegisteredStorage& register_memory(const void* data) {
    const auto [record, is_new] = memory_.insert(data);
    if (!is_new) [[unlikely]]
      end_lost(*record);
    record->id = next_id();
    return *record;
  }
  [[gnu::noinline, gnu::cold]] void end_lost(RegisteredStorage& record);
  ObservedStorage observe_fresh(const c10::StorageImpl& storage, c10::DataPtr& data);
  ObservedStorage observe_again(RegisteredStorage& record);
  [[gnu::noinline]] ObservedStorage observe_uncommon(c10::StorageImpl& storage, bool even_empty);
  ObservedStorage observe_meta(c10::StorageImpl& storage, bool even_empty);
  /// For the first storage that uses memory whose allocation was reported.
  ObservedStorage observe_allocated(c10::StorageImpl& storage, RegisteredStorage& allocated);
  RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record);
  void resize(c10::StorageImpl& storage, RegisteredStorage record);

  static StorageRegistry* const instance_;

  // Every op reads these members, so they share a cache line.
  alignas(64) SpinLock mutex_;
  KnowledgeCache* cache_ = nullptr;
  IsInBackward is_in_backward_ = &is_in_graph_task;
  uint64_t last_id_ = 0;
  MemoryTable memory_;
  Listeners listeners_;
  CpuDeleter cpu_deleter_{mutex_, memory_, *this};
  WeakReferences weak_references_{*this};
  OwnContext own_context_{mutex_, *this};
  DeviceTraceWatch device_trace_{memory_, *this};
};

}  // namespace tidegauge
