// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <mutex>
#include <tuple>

#include "capture/compat/torch_device.h"
#include "capture/storages/cpu_deleter.h"
#include "capture/storages/device_trace.h"
#include "capture/storages/knowledge_cache.h"
#include "capture/storages/listeners.h"
#include "capture/storages/own_context.h"
#include "capture/storages/pending_frees.h"
#include "capture/storages/weak_references.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// Knows every storage of this process that was observed or allocated under the eyes of a listener:
/// gives it an id, watches for its end (end_watch.h), and notifies the listeners.
///
/// One per process, never destroyed: deleters outlive trackers and the interpreter. One lock guards
/// it, the listeners and their ledgers. No tensor dies and the GIL is never awaited under the lock.
class TIDEGAUGE_API StorageRegistry final : EndHandler {
 public:
  static StorageRegistry& get() { return *instance_; }
  SpinLock& mutex() { return mutex_; }
  [[nodiscard]] static std::lock_guard<SpinLock> lock() { return std::lock_guard(get().mutex_); }

  // The lock must be held for what follows.

  Listeners& listeners() { return listeners_; }
  /// First sight of a storage registers it. `even_empty`: also a storage of no bytes gets an id,
  /// because a label is to be kept for it. Notifies nobody of a birth: see `mark_known`.
  ObservedStorage observe(c10::StorageImpl* storage, bool even_empty = false);
  /// Registers the storage of a fake tensor. Listeners of `fake_mode` count it on `device`.
  void register_fake(c10::StorageImpl* storage, c10::Device device, const void* fake_mode);
  /// Every started listener has been notified of the storage.
  void mark_known(const ObservedStorage& observed);
  /// The id of a storage of registered CPU memory that every started listener knows; else none.
  StorageId find_known(c10::StorageImpl* storage);

  /// The CPU allocator has just made this memory. Its deleter is replaced.
  void record_allocation(c10::DataPtr& data, int64_t size_bytes);
  /// A device allocator reports what it did.
  void record_device(const DeviceTraceEntry& entry);

  /// Looks at up to `count` weak references.
  void poll(size_t count) {
    if (!weak_references_.empty()) [[unlikely]]
      weak_references_.poll(count);
  }
  void poll_all() { poll(weak_references_.size()); }

  /// Around an op of this thread, which reports what it frees when it ends.
  static PendingFrees& begin_op() {
    PendingFrees& pending = PendingFrees::of_this_thread();
    ++pending.depth;
    return pending;
  }
  /// The op has written to `storage`: if it freed the old memory, this is a resize.
  void note_written(PendingFrees& pending, c10::StorageImpl* storage);
  /// The op is over and its births are reported.
  void end_op(PendingFrees& pending) {
    --pending.depth;
    if (pending.freed != nullptr && pending.depth == 0) [[unlikely]]
      report_pending(pending);
  }
  /// The resize that `begin_op` began is over. False if it freed no registered memory: then the
  /// storage may be new.
  bool finish_resize(PendingFrees& pending, c10::StorageImpl* storage);

  CpuDeleter& cpu_deleter() { return cpu_deleter_; }
  const WeakReferences& weak_references() const { return weak_references_; }
  size_t storage_count() const { return memory_.size() + weak_references_.size(); }

  /// Without the lock: leaves a meta storage as torch made it. A weak reference watches it instead.
  void give_back(c10::StorageImpl* storage);

  // What follows is for capture/fast.

  void set_knowledge_cache(KnowledgeCache* cache) { cache_ = cache; }
  using IsInBackward = bool (*)();  // in this thread
  static bool ask_autograd();
  void set_is_in_backward(IsInBackward query) { is_in_backward_ = query; }
  MemoryTable& memory() { return memory_; }
  /// True for what most ops make: fresh memory of torch's own allocator.
  bool is_usual(const c10::StorageImpl& storage, const c10::DataPtr& data) const {
    return cpu_deleter_.is_usual(data) && storage.nbytes() > 0 && weak_references_.empty();
  }
  [[gnu::always_inline]] RegisteredStorage& register_fresh(const c10::StorageImpl& storage,
                                                           c10::DataPtr& data) {
    const c10::DeleterFnPtr deleter = data.get_deleter();
    std::ignore = cpu_deleter_.replace_deleter(data);  // no other thread has it yet
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

  StorageId next_id() { return StorageId(++last_id_); }
  /// A record with a new id.
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
  /// The first storage of memory that an allocator has reported.
  ObservedStorage claim(c10::StorageImpl& storage, RegisteredStorage& allocated);
  RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record);
  void resize(c10::StorageImpl& storage, RegisteredStorage record);

  static StorageRegistry* const instance_;

  // Every op reads these, so they lie side by side.
  alignas(64) SpinLock mutex_;
  KnowledgeCache* cache_ = nullptr;
  IsInBackward is_in_backward_ = &ask_autograd;
  uint64_t last_id_ = 0;
  Listeners listeners_;
  MemoryTable memory_;
  CpuDeleter cpu_deleter_{mutex_, memory_, *this};
  WeakReferences weak_references_{*this};
  OwnContext own_context_{mutex_, *this};
  DeviceTrace device_trace_{memory_, *this};
};

}  // namespace tidegauge
