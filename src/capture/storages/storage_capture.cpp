// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/storage_capture.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "capture/storages/claimed_storage.h"
#include "track/memory_tracker.h"
#include "capture/hooks/running_node.h"
#include "capture/compat/torch_device.h"

namespace tidegauge {
namespace {

/// Of a meta storage; none if it depends on symbolic shapes.
int64_t meta_size_bytes(const c10::StorageImpl& storage) {
  return storage.sym_nbytes().maybe_as_int().value_or(0);
}

/// CUDA's caching allocator gives out multiples of 512 bytes; without caching, what is asked for.
int64_t cuda_unit_bytes() {
  static const bool has_cache = [] {
    const char* without = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    return without == nullptr ||
           std::string_view(without).find_first_not_of('0') == std::string_view::npos;
  }();
  return has_cache ? 512 : 1;
}

/// Of a meta storage that counts as being on `device`. What is fake takes there what its allocator
/// would give; what is simulated is as asked for, for an allocator of its own is simulated, too.
int64_t counted_bytes(const c10::StorageImpl& storage, Device device, const void* fake_mode) {
  const int64_t size_bytes = meta_size_bytes(storage);
  if (fake_mode == nullptr || device.type != cuda(0).type) return size_bytes;
  const int64_t unit = cuda_unit_bytes();
  return (size_bytes + unit - 1) / unit * unit;
}

}  // namespace

void StorageCapture::claim_meta(const at::Tensor& tensor, const at::Tensor& whole,
                                const void* fake_mode) {
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (storage->device_type() != c10::kMeta || data.get_context() != nullptr) return;
  // Asking a fake tensor for its device is a call into Python; on the CPU there is only one.
  const bool is_cpu = whole.key_set().has_backend(c10::BackendComponent::CPUBit);
  const c10::Device device = is_cpu ? c10::Device(c10::kCPU) : whole.device();
  const std::lock_guard lock(mutex_);
  Known known{StorageId(++last_id_), 0, to_device(device), storage};
  known.size_bytes = counted_bytes(*storage, known.device, fake_mode);
  known.is_unseen = true;
  adopt_meta(storage, known, fake_mode);
}

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): without memory nothing would load
StorageCapture* const StorageCapture::instance_ = [] {
  // A child of fork has only the thread that forked: another must not hold the lock for ever.
  pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                 [] { get().mutex_.unlock(); });
  return new StorageCapture;
}();

StorageCapture::Known StorageCapture::take_pending(Pending& open, size_t position) {
  auto& freed = *open.freed;
  const Known known = freed[position];
  std::copy(freed.begin() + position + 1, freed.begin() + open.count, freed.begin() + position);
  --open.count;
  return known;
}

void StorageCapture::add(MemoryTracker* tracker) {
  trackers_.push_back(tracker);
  tracker_count_ = trackers_.size();
}
void StorageCapture::remove(MemoryTracker* tracker) {
  std::erase(trackers_, tracker);
  tracker_count_ = trackers_.size();
}

bool StorageCapture::is_fake_mode_tracked(const void* mode) const {
  return std::any_of(trackers_.begin(), trackers_.end(), [&](const MemoryTracker* tracker) {
    return tracker->is_started() && tracker->fake_mode() == mode;
  });
}

StorageCapture::StorageCapture() : usual_deleter_(c10::GetDefaultCPUAllocator()->raw_deleter()) {}

void StorageCapture::find_sole() {
  // One that is stopped is told of frees, too.
  MemoryTracker* only = trackers_.size() == 1 ? trackers_.front() : nullptr;
  sole_ = only != nullptr && only->is_started() && only->wants_events_alone() ? only : nullptr;
}

bool StorageCapture::tell_birth(const at::Tensor& tensor, uint8_t birth_facts, OpId op) {
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage == nullptr) return false;
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (!is_usual(*storage, data)) return false;
  Known& known = enter_fresh(*storage, data);
  known.told_epoch = epoch();
  told_.add(data.get());
  sole_->storage_born(known.id, known.size_bytes, known.device, tensor.unsafeGetTensorImpl(),
                      birth_facts, op);
  return true;
}

SeenStorage StorageCapture::see(c10::StorageImpl* storage, bool even_empty) {
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  // Nearly always it is just made, or known.
  if (is_usual(*storage, data)) return see_fresh(storage, data);
  if (is_ours(data.get_deleter())) {
    Known* known = by_data_.find(data.get());
    if (known != nullptr && known->storage != nullptr) return see_again(*known);
  }
  return see_uncommon(storage, even_empty);
}

SeenStorage StorageCapture::see_uncommon(c10::StorageImpl* storage, bool even_empty) {
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (storage->device_type() == c10::kMeta && parked_at_.count(storage) == 0) {
    const auto* claimed =
        data.get_context() == nullptr ? dynamic_cast<const ClaimedStorage*>(storage) : nullptr;
    if (claimed != nullptr && (even_empty || meta_size_bytes(*storage) > 0)) {
      Known known{StorageId(++last_id_), meta_size_bytes(*storage),
                  to_device(claimed->claimed_device), storage};
      known.is_unseen = true;
      adopt_meta(storage, known);
    }
    return see_meta(storage);
  }
  const auto size_bytes = static_cast<int64_t>(storage->nbytes());
  if (is_fresh(data) && size_bytes > 0 &&
      (parked_.empty() || parked_at_.find(storage) == parked_at_.end())) {
    return see_fresh(storage, data);
  }
  if (Known* known = by_data_.find(data.get())) {
    if (is_fresh(data)) {
      tell_freed(forget(known).id);
    } else if (known->storage == nullptr) {
      return claim(storage, *known);
    } else {
      // Two storages may share memory (copy-on-write, from_blob of a tensor's own): it is there
      // once.
      return see_again(*known);
    }
  }
  if (const auto it = parked_at_.find(storage); it != parked_at_.end()) {
    const Known known = parked_[it->second].known;
    if (known.size_bytes != size_bytes) finish_resize(storage, known);
    return {known.id, size_bytes, known.device, false};
  }
  if (!even_empty && (size_bytes == 0 || data.get() == nullptr)) return {};
  const Known known{StorageId(++last_id_), size_bytes, to_device(storage->device()), storage,
                    nullptr};
  Known* adopted = adopt(storage, known);
  if (adopted == nullptr) park(storage, known);
  return {known.id, size_bytes, known.device,
          true,     false,      adopted != nullptr ? &adopted->told_epoch : nullptr};
}

SeenStorage StorageCapture::see_again(Known& known) {
  const bool is_told = known.told_epoch == epoch();
  if (is_told) told_.add(known.data);
  return {known.id, known.size_bytes, known.device, false, is_told, &known.told_epoch, known.data};
}

StorageCapture::Known& StorageCapture::enter_fresh(const c10::StorageImpl& storage,
                                                   c10::DataPtr& data) {
  const c10::DeleterFnPtr deleter = data.get_deleter();
  std::ignore = exchange_deleter(data, deleter);  // it is the one it is
  Known& known = enter(data.get());
  known.size_bytes = static_cast<int64_t>(storage.nbytes());
  known.device = to_device(storage.device());
  known.storage = &storage;
  known.deleter = deleter;
  return known;
}

SeenStorage StorageCapture::see_fresh(const c10::StorageImpl* storage, c10::DataPtr& data) {
  told_.remove(data.get());
  Known& known = enter_fresh(*storage, data);
  return {known.id, known.size_bytes, known.device, true, false, &known.told_epoch, known.data};
}

void StorageCapture::end_lost(Known& known) {
  const void* data = known.data;
  tell_freed(known.id);
  known = Known();
  known.data = data;
}

StorageCapture::Known StorageCapture::forget(Known* known) {
  const Known copy = *known;
  by_data_.erase(known);
  return copy;
}

bool StorageCapture::is_claimed(const c10::DataPtr& data) {
  return data.get_deleter() == &StorageCapture::free_meta;
}

StorageCapture::Claim* StorageCapture::claim_of(c10::StorageImpl* storage) {
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  return is_claimed(data) ? static_cast<Claim*>(data.get_context()) : nullptr;
}

const void* StorageCapture::fake_mode_of(c10::StorageImpl* storage) {
  const Claim* claim = claim_of(storage);
  return claim != nullptr ? claim->fake_mode : nullptr;
}

void StorageCapture::adopt_meta(c10::StorageImpl* storage, const Known& known,
                                const void* fake_mode) {
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, new Claim{known, fake_mode},
                                            &StorageCapture::free_meta, storage->device()));
}

void StorageCapture::give_back(c10::StorageImpl* storage) {
  if (!is_claimed(storage->_mutable_data_ptr_no_checks())) return;
  const std::lock_guard lock(mutex_);
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  const std::unique_ptr<Claim> known(static_cast<Claim*>(data.release_context()));
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, storage->device()));
  known->size_bytes = meta_size_bytes(*storage);  // as it is compared with from now on
  park(storage, *known);
}

SeenStorage StorageCapture::claim(c10::StorageImpl* storage, Known& allocated) {
  if (const auto it = parked_at_.find(storage); it != parked_at_.end()) {
    // It had shrunk to nothing, and has grown again.
    const Known known = parked_[it->second].known;
    finish_resize(storage, known);
    return {known.id, allocated.size_bytes, known.device, false};
  }
  allocated.storage = storage;
  return {allocated.id, allocated.size_bytes, allocated.device, true, false, &allocated.told_epoch};
}

SeenStorage StorageCapture::see_meta(c10::StorageImpl* storage) {
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (!is_claimed(data)) {
    const int64_t size_bytes = meta_size_bytes(*storage);
    if (size_bytes == 0 || data.get_context() != nullptr) return {};
    Known known{StorageId(++last_id_), size_bytes, to_device(storage->device()), storage};
    known.is_unseen = true;
    adopt_meta(storage, known);
  }
  Claim& known = *claim_of(storage);
  const int64_t size_bytes = counted_bytes(*storage, known.device, known.fake_mode);
  const bool is_new = std::exchange(known.is_unseen, false);
  if (known.size_bytes != size_bytes) {
    known.size_bytes = size_bytes;
    if (!is_new) tell_resized(known.id, size_bytes);
  }
  return {known.id,         size_bytes, known.device, is_new, known.told_epoch == epoch(),
          &known.told_epoch};
}

void StorageCapture::free_meta(void* context) {
  const std::unique_ptr<Claim> known(static_cast<Claim*>(context));
  StorageCapture& self = get();
  const std::lock_guard lock(self.mutex_);
  self.tell_freed(known->id);
}

/// The deleter of memory that a CPU allocator made, whose context is the memory itself.
bool StorageCapture::is_cpu_deleter(c10::DeleterFnPtr deleter) const {
  if (deleter == nullptr) return false;
  return deleter == usual_deleter_ || deleter == wrapped_deleter_ ||
         deleter == c10::GetAllocator(c10::kCPU)->raw_deleter();
}

bool StorageCapture::is_fresh(const c10::DataPtr& data) const {
  const c10::DeleterFnPtr deleter = data.get_deleter();
  return !is_ours(deleter) && data.get() == data.get_context() && is_cpu_deleter(deleter);
}

void StorageCapture::record_allocation(c10::DataPtr& data, int64_t size_bytes) {
  const c10::DeleterFnPtr deleter = data.get_deleter();
  // A context of its own is what its deleter gets, and says nothing to ours.
  if (data.get() == nullptr || data.get() != data.get_context() || is_ours(deleter)) return;
  told_.remove(data.get());
  if (!data.compare_exchange_deleter(deleter, &free_tracked)) return;
  Known& known = enter(data.get());
  known.size_bytes = size_bytes;
  known.device = to_device(data.device());
  known.deleter = deleter;
  tell_allocated(known.id, known.device, size_bytes);
}

void StorageCapture::record_device(const DeviceTraceEntry& entry) {
  const auto event = device_events_.consume(entry, StorageId(last_id_ + 1));
  if (!event) return;
  // Devices and host share one address space.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a key of our table, never followed
  const auto* data = reinterpret_cast<const void*>(entry.address);
  if (event->kind == EventKind::StorageBorn) {
    ++last_id_;
    *by_data_.insert(data).first = {.id = event->storage,
                                    .size_bytes = event->size_bytes,
                                    .device = entry.device,
                                    .data = data};
    tell_allocated(event->storage, entry.device, event->size_bytes);
  } else if (Known* known = by_data_.find(data)) {
    end_memory(forget(known));
  }
}

void StorageCapture::tell_allocated(StorageId id, Device device, int64_t size_bytes) {
  for (MemoryTracker* tracker : trackers_) {
    if (tracker->wants_allocations()) tracker->memory_allocated(id, device, size_bytes);
  }
}

StorageCapture::Known* StorageCapture::adopt(c10::StorageImpl* storage, Known known) {
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  const c10::DeleterFnPtr deleter = data.get_deleter();
  known.data = data.get();
  if (Known* allocated = by_data_.find(data.get())) {
    if (allocated->storage != nullptr) return nullptr;
    known.deleter = allocated->deleter;
    *allocated = known;
    return allocated;
  }
  if (data.get() == nullptr || !is_fresh(data)) return nullptr;
  told_.remove(data.get());
  if (!exchange_deleter(data, deleter)) return nullptr;
  known.deleter = deleter;
  Known* place = by_data_.insert(data.get()).first;
  *place = known;
  return place;
}

void StorageCapture::park(c10::StorageImpl* storage, Known known) {
  known.deleter = nullptr;
  parked_at_[storage] = parked_.size();
  // Whoever shows us a storage holds it, so this reference is never the last one.
  const auto strong = c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(storage);
  const bool is_foreign = storage->device_type() != c10::kMeta;
  parked_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(strong), known, is_foreign});
}

void StorageCapture::unpark(size_t position) {
  parked_at_.erase(parked_[position].known.storage);
  if (position + 1 < parked_.size()) {
    parked_[position] = std::move(parked_.back());
    parked_at_[parked_[position].known.storage] = position;
  }
  parked_.pop_back();
}

void StorageCapture::poll_parked(size_t count) {
  for (count = std::min(count, parked_.size()); count > 0 && !parked_.empty(); --count) {
    if (next_poll_ >= parked_.size()) next_poll_ = 0;
    if (!parked_[next_poll_].reference.expired()) {
      ++next_poll_;
      continue;
    }
    const StorageId id = parked_[next_poll_].known.id;
    unpark(next_poll_);
    tell_freed(id);
  }
}

void StorageCapture::free_tracked(void* data) {
  StorageCapture& self = get();
  c10::DeleterFnPtr deleter = nullptr;
  {
    const std::lock_guard lock(self.mutex_);
    deleter = self.end_found(self.by_data_.find(data));
  }
  if (deleter != nullptr) [[likely]]
    deleter(data);
}

void StorageCapture::free_usual(void* data) {
  StorageCapture& self = get();
  const bool is_let_go = is_in_backward();
  {
    const std::lock_guard lock(self.mutex_);
    Known* found = self.by_data_.find(data);
    if (found != nullptr && self.sole_ != nullptr && pending().depth == 0) [[likely]] {
      const StorageId id = found->id;
      self.by_data_.erase(found);
      self.sole_->storage_freed(id, is_let_go);
    } else {
      std::ignore = self.end_found(found);
    }
  }
  self.usual_deleter_(data);
}

c10::DeleterFnPtr StorageCapture::end_found(Known* found) {
  // Every DataPtr that carries our deleter is in the table. This is raw_deallocate of what was
  // allocated before the channel was opened.
  if (found == nullptr) return wrapped_deleter_;
  const Known known = forget(found);
  end_memory(known);
  return known.deleter;
}

void StorageCapture::end_memory(const Known& known) {
  Pending& open = pending();
  if (known.storage == nullptr || open.depth == 0) return tell_freed(known.id);
  if (open.freed == nullptr) open.freed = new std::array<Known, 4>;
  if (open.count == open.freed->size()) return tell_freed(known.id);
  (*open.freed)[open.count++] = known;
  // Whether it is freed or resized is told later; the bytes are gone for those who count them now.
  for (MemoryTracker* tracker : trackers_) {
    if (tracker->has_allocator_channel()) tracker->storage_resized(known.id, 0);
  }
}

void StorageCapture::begin_resize() { begin_op(); }

void StorageCapture::end_resize(c10::StorageImpl* storage) {
  Pending& open = pending();
  const std::lock_guard lock(mutex_);
  if (open.count > 0) {
    // The last one: the storage may have been known by another address (set_, swapped tensors).
    finish_resize(storage, take_pending(open, open.count - 1));
  } else {
    MemoryTracker::tell_made(storage);
  }
  end_op(open);
}

void StorageCapture::note_written(Pending& open, c10::StorageImpl* storage) {
  for (size_t i = 0; i < open.count; ++i) {
    if ((*open.freed)[i].storage == storage) {
      finish_resize(storage, take_pending(open, i));
      return;
    }
  }
}

void StorageCapture::tell_pending(Pending& open) {
  for (size_t i = 0; i < open.count; ++i) tell_freed((*open.freed)[i].id);
  delete std::exchange(open.freed, nullptr);
  open.count = 0;
}

void StorageCapture::finish_resize(c10::StorageImpl* storage, Known known) {
  if (const auto it = parked_at_.find(storage); it != parked_at_.end()) unpark(it->second);
  known.storage = storage;
  known.size_bytes = static_cast<int64_t>(storage->nbytes());
  StorageId allocated;
  if (const Known* memory = by_data_.find(storage->_mutable_data_ptr_no_checks().get());
      memory != nullptr && memory->storage == nullptr) {
    allocated = memory->id;
    known.size_bytes = memory->size_bytes;  // rounded, on a device
  }
  if (adopt(storage, known) == nullptr) park(storage, known);
  tell_resized(known.id, known.size_bytes, allocated);
}

void StorageCapture::tell_resized(StorageId id, int64_t size_bytes, StorageId allocated) {
  for (MemoryTracker* tracker : trackers_) tracker->storage_resized(id, size_bytes, allocated);
}

void StorageCapture::tell_freed(StorageId id) {
  // Between the ops of a backward what dies is what its nodes had saved.
  const bool is_let_go = pending().depth == 0 && is_in_backward();
  for (MemoryTracker* tracker : trackers_) tracker->storage_freed(id, is_let_go);
}

}  // namespace tidegauge
