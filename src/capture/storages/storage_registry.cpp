// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/storage_registry.h"

#include <pthread.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

#include "capture/storages/virtual_storage.h"
#include "core/util/device_blocks.h"

namespace tidegauge {
namespace {

/// The bytes of a meta storage; 0 if they depend on symbolic shapes.
int64_t meta_bytes(const c10::StorageImpl& storage) {
  return storage.sym_nbytes().maybe_as_int().value_or(0);
}

/// A fake storage counts its size rounded up, as the allocator of its device would. A simulated
/// storage counts exactly its size, because the simulated allocator rounds later.
int64_t counted_bytes(const c10::StorageImpl& storage, Device device, const void* fake_mode) {
  const int64_t size_bytes = meta_bytes(storage);
  const bool is_rounded = fake_mode != nullptr && device.type == cuda(0).type;
  return is_rounded ? round_up(size_bytes, device_unit_bytes()) : size_bytes;
}

}  // namespace

bool StorageRegistry::is_in_graph_task() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): throws only if memory runs out at load
StorageRegistry* const StorageRegistry::instance_ = [] {
  // After a fork the child has only one thread. If another thread held the lock during the fork,
  // the child could never take it. So the forking thread takes it first.
  pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                 [] { get().mutex_.unlock(); });
  return new StorageRegistry;
}();

ObservedStorage StorageRegistry::observe(c10::StorageImpl* storage, bool even_empty) {
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  // Nearly all storages are fresh or already registered.
  if (is_usual(*storage, data)) return observe_fresh(*storage, data);
  RegisteredStorage* found = cpu_deleter_.find(*storage);
  if (found != nullptr && found->storage != nullptr) return observe_again(*found);
  return observe_uncommon(*storage, even_empty);
}

StorageId StorageRegistry::find(c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  const RegisteredStorage* found = weak_references_.find(storage);
  if (found == nullptr) found = own_context_.find(storage);
  if (found == nullptr && !cpu_deleter_.is_fresh(data)) found = memory_.find(data.get());
  return found != nullptr ? found->id : StorageId();
}

ObservedStorage StorageRegistry::observe_uncommon(c10::StorageImpl& storage, bool even_empty) {
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  RegisteredStorage* polled = weak_references_.find(storage);
  if (storage.device_type() == c10::kMeta && polled == nullptr) {
    return observe_meta(storage, even_empty);
  }
  const auto size_bytes = static_cast<int64_t>(storage.nbytes());
  const bool is_fresh = cpu_deleter_.is_fresh(data);
  if (is_fresh && size_bytes > 0 && polled == nullptr) return observe_fresh(storage, data);
  if (RegisteredStorage* found = memory_.find(data.get())) {
    if (!is_fresh) {
      // Two storages may share memory (copy-on-write, from_blob on a tensor's memory). It counts
      // once.
      return found->storage != nullptr ? observe_again(*found) : observe_allocated(storage, *found);
    }
    const StorageId lost = found->id;
    memory_.erase(found);
    report_freed(lost);
  }
  if (polled != nullptr) {
    const RegisteredStorage record = *polled;
    if (record.size_bytes != size_bytes) resize(storage, record);
    return {record.id, size_bytes, record.device, false};
  }
  if (!even_empty && (size_bytes == 0 || data.get() == nullptr)) return {};
  const RegisteredStorage record{next_id(), size_bytes, to_device(storage.device()), &storage};
  RegisteredStorage* watched = watch(storage, record);
  const bool is_polled = watched == weak_references_.find(storage);
  return {record.id, size_bytes, record.device,
          true,      false,      is_polled ? nullptr : &watched->known_epoch};
}

void StorageRegistry::mark_known(const ObservedStorage& observed) {
  if (observed.known_epoch != nullptr) *observed.known_epoch = listeners_.epoch();
  if (observed.data != nullptr && cache_ != nullptr) cache_->memory_known(observed.data);
}

ObservedStorage StorageRegistry::observe_again(RegisteredStorage& record) {
  const bool is_known = record.known_epoch == listeners_.epoch();
  if (is_known && cache_ != nullptr) cache_->memory_known(record.data);
  return {record.id, record.size_bytes,   record.device, false,
          is_known,  &record.known_epoch, record.data};
}

ObservedStorage StorageRegistry::observe_fresh(const c10::StorageImpl& storage,
                                               c10::DataPtr& data) {
  if (cache_ != nullptr) cache_->memory_renewed(data.get());
  RegisteredStorage& record = register_fresh(storage, data);
  return {record.id, record.size_bytes,   record.device, true,
          false,     &record.known_epoch, record.data};
}

ObservedStorage StorageRegistry::observe_meta(c10::StorageImpl& storage, bool even_empty) {
  RegisteredStorage* record = own_context_.find(storage);
  if (record == nullptr) {
    if (storage._mutable_data_ptr_no_checks().get_context() != nullptr) return {};  // foreign
    const auto* simulated = dynamic_cast<const VirtualStorage*>(&storage);
    const int64_t size_bytes = meta_bytes(storage);
    if (size_bytes == 0 && !(even_empty && simulated != nullptr)) return {};
    const c10::Device device = simulated != nullptr ? simulated->counted_device : storage.device();
    RegisteredStorage made{next_id(), size_bytes, to_device(device), &storage};
    made.is_unobserved = true;
    record = own_context_.watch(storage, made);
  }
  const int64_t size_bytes = counted_bytes(storage, record->device, OwnContext::fake_mode(storage));
  const bool is_new = std::exchange(record->is_unobserved, false);
  if (record->size_bytes != size_bytes) {
    record->size_bytes = size_bytes;
    if (!is_new) listeners_.notify_resized(record->id, size_bytes);
  }
  return {record->id,
          size_bytes,
          record->device,
          is_new,
          record->known_epoch == listeners_.epoch(),
          &record->known_epoch};
}

void StorageRegistry::register_fake(c10::StorageImpl* storage, c10::Device device,
                                    const void* fake_mode) {
  const bool has_context = storage->_mutable_data_ptr_no_checks().get_context() != nullptr;
  if (storage->device_type() != c10::kMeta || has_context) return;
  RegisteredStorage record{next_id(), 0, to_device(device), storage};
  record.size_bytes = counted_bytes(*storage, record.device, fake_mode);
  record.is_unobserved = true;
  own_context_.watch_fake(*storage, record, fake_mode);
}

void StorageRegistry::release_context(c10::StorageImpl* storage) {
  if (!OwnContext::is_on(storage->_mutable_data_ptr_no_checks())) return;
  const std::lock_guard lock(mutex_);
  RegisteredStorage record = OwnContext::release(*storage);
  record.size_bytes = meta_bytes(*storage);  // `observe` compares them with the storage's bytes
  weak_references_.watch(*storage, record);
}

ObservedStorage StorageRegistry::observe_allocated(c10::StorageImpl& storage,
                                                   RegisteredStorage& allocated) {
  if (const RegisteredStorage* polled = weak_references_.find(storage)) {
    // The storage was resized to no bytes before, and now it has memory again.
    const RegisteredStorage record = *polled;
    const int64_t size_bytes = allocated.size_bytes;
    resize(storage, record);
    return {record.id, size_bytes, record.device, false};
  }
  allocated.storage = &storage;
  return {allocated.id, allocated.size_bytes,  allocated.device, true,
          false,        &allocated.known_epoch};
}

void StorageRegistry::record_allocation(c10::DataPtr& data, int64_t size_bytes) {
  const c10::DeleterFnPtr deleter = data.get_deleter();
  // A deleter receives the context. Ours needs the address of the memory, so both must be equal.
  if (data.get() == nullptr || data.get() != data.get_context() || CpuDeleter::is_ours(deleter)) {
    return;
  }
  if (cache_ != nullptr) cache_->memory_renewed(data.get());
  if (!data.compare_exchange_deleter(deleter, CpuDeleter::deleter())) return;
  RegisteredStorage& record = register_memory(data.get());
  record.size_bytes = size_bytes;
  record.device = to_device(data.device());
  record.deleter = deleter;
  listeners_.notify_allocated(record.id, record.device, size_bytes);
}

void StorageRegistry::record_device(const DeviceTraceEntry& entry) {
  const RegisteredStorage* made = device_trace_.consume(entry, StorageId(last_id_ + 1));
  if (made == nullptr) return;
  ++last_id_;
  listeners_.notify_allocated(made->id, made->device, made->size_bytes);
}

RegisteredStorage* StorageRegistry::watch(c10::StorageImpl& storage,
                                          const RegisteredStorage& record) {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  if (cache_ != nullptr && cpu_deleter_.is_fresh(data)) cache_->memory_renewed(data.get());
  const std::initializer_list<EndWatch*> ways{&cpu_deleter_, &device_trace_, &weak_references_};
  for (EndWatch* way : ways) {
    if (RegisteredStorage* watched = way->watch(storage, record)) return watched;
  }
  return nullptr;
}

void StorageRegistry::resize(c10::StorageImpl& storage, RegisteredStorage record) {
  weak_references_.release(storage);
  record.storage = &storage;
  record.size_bytes = static_cast<int64_t>(storage.nbytes());
  StorageId allocated;
  const RegisteredStorage* memory = memory_.find(storage._mutable_data_ptr_no_checks().get());
  if (memory != nullptr && memory->storage == nullptr) {
    allocated = memory->id;
    record.size_bytes = memory->size_bytes;  // a device allocator may have rounded them up
  }
  watch(storage, record);
  listeners_.notify_resized(record.id, record.size_bytes, allocated);
}

bool StorageRegistry::finish_resize(PendingFrees& pending, c10::StorageImpl* storage) {
  if (pending.count == 0) return false;
  // Take the last free, not the one with this storage: the record may have the address of another
  // storage object (set_, swapped tensors).
  resize(*storage, pending.take(pending.count - 1));
  return true;
}

void StorageRegistry::note_written(PendingFrees& pending, c10::StorageImpl* storage) {
  for (size_t i = 0; i < pending.count; ++i) {
    if ((*pending.freed)[i].storage == storage) return resize(*storage, pending.take(i));
  }
}

void StorageRegistry::report_pending(PendingFrees& pending) {
  for (size_t i = 0; i < pending.count; ++i) report_freed((*pending.freed)[i].id);
  pending.clear();
}

void StorageRegistry::memory_ended(const RegisteredStorage& ended) {
  PendingFrees& pending = PendingFrees::of_this_thread();
  if (ended.storage == nullptr || pending.depth == 0 || !pending.add(ended)) {
    return report_freed(ended.id);
  }
  listeners_.notify_memory_gone(ended.id);
}

void StorageRegistry::report_freed(StorageId id) {
  // A storage that is freed between two ops of a backward was saved by one of its nodes.
  const bool by_backward = PendingFrees::of_this_thread().depth == 0 && is_in_backward_();
  listeners_.notify_freed(id, by_backward);
}

/// The memory was freed without our deleter, which raw_allocate permits: oneDNN keeps such memory
/// and later frees it with the allocator that is current then.
void StorageRegistry::end_lost(RegisteredStorage& record) {
  const void* data = record.data;
  report_freed(record.id);
  record = RegisteredStorage();
  record.data = data;
}

}  // namespace tidegauge
