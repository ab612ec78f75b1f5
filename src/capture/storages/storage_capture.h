// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/flat_hash_map.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "capture/hooks/running_node.h"
#include "capture/storages/seen_storage.h"
#include "capture/storages/tensor_storages.h"
#include "capture/compat/thread_local.h"
#include "capture/fast/told_memory.h"
#include "core/events/device_events.h"
#include "core/util/flat_table.h"
#include "core/events/ids.h"
#include "core/util/spin_lock.h"

namespace tidegauge {

class MemoryTracker;

/// Knows the storages of this process that some tracker has come across, and notices their ends.
///
///   memory of the CPU allocator     only the deleter is exchanged, for one that tells us and then
///                                   calls the old one; context and data stay, so copy-on-write,
///                                   sharing and pickling see no difference. Done when a storage is
///                                   come across, or at once where allocator_channel.h shows it:
///                                   then it belongs to no storage until one is come across
///   meta, fake                      has no memory: carries our own context
///   foreign memory (numpy, shared,  never altered: a weak reference is looked at now and then
///   from_blob, mapped files),       (a few at each op, all of them before an answer is given)
///   storages that shrank to nothing,
///   meta that was cloned lazily
///
/// One per process, never destroyed: deleters outlive trackers and the interpreter. All of it and
/// all ledgers are guarded by one lock, under which no tensor dies and the GIL is never awaited.
class alignas(64) StorageCapture {
  struct alignas(64) Known {
    StorageId id;
    int64_t size_bytes = 0;
    Device device;
    const c10::StorageImpl* storage = nullptr;  // to compare, never followed; null: only allocated
    c10::DeleterFnPtr deleter = nullptr;        // the one that ours replaced; null: never replaced
    uint64_t told_epoch = 0;                    // when all started trackers were told of it
    bool is_unseen = false;                     // claimed, but no op has shown it yet
    const void* data = nullptr;                 // its place in the table; null: in no table
  };

 public:
  /// What this thread's running op or resize has freed so far, which is nothing for nearly all.
  /// More than fit (none does in practice) are told at once, at worst as a free and a birth for a
  /// resize.
  struct alignas(16) Pending {
    int depth = 0;
    uint32_t count = 0;
    std::array<Known, 4>* freed = nullptr;  // null: there are none
  };

  static StorageCapture& get() { return *instance_; }
  SpinLock& mutex() { return mutex_; }
  [[nodiscard]] static std::lock_guard<SpinLock> lock() {
    return std::lock_guard<SpinLock>(get().mutex_);
  }

  // With the lock held.

  void add(MemoryTracker* tracker);
  void remove(MemoryTracker* tracker);
  /// All that are alive; not all of them are started.
  const std::vector<MemoryTracker*>& trackers() const { return trackers_; }
  /// Also without the lock.
  bool has_trackers() const { return tracker_count_.load(std::memory_order_relaxed) > 0; }
  bool is_fake_mode_tracked(const void* mode) const;
  static bool is_unclaimed_on_meta(c10::StorageImpl* storage) {
    return storage->device_type() == c10::kMeta &&
           !is_claimed(storage->_mutable_data_ptr_no_checks());
  }
  /// In which a storage was claimed; null: in none.
  static const void* fake_mode_of(c10::StorageImpl* storage);

  /// Whether the memory of a meta storage is known to us.
  static bool is_claimed(const c10::DataPtr& data);
  /// `even_empty`: also a storage of no bytes gets an id, for it has a label to keep.
  SeenStorage see(c10::StorageImpl* storage, bool even_empty = false);
  /// Given `is_told`.
  StorageId id_of_told(c10::StorageImpl* storage) const {
    const Known* known = by_data_.find(storage->_mutable_data_ptr_no_checks().get());
    return known != nullptr ? known->id : StorageId();
  }
  /// Whether there is one tracker alone, it is started and wants nothing but events.
  bool has_sole() const { return sole_ != nullptr; }
  MemoryTracker* sole() const { return sole_; }
  /// For that one, the straight way of what most ops do: they make one storage of the usual memory.
  /// False, and nothing done, if this one is another.
  bool tell_birth(const at::Tensor& tensor, uint8_t birth_facts, OpId op);
  /// Given `is_told`: whether that one has said that it is a parameter, and nothing else since.
  bool is_told_parameter(c10::StorageImpl* storage) const {
    return has_sole() && told_.is_parameter(storage->_mutable_data_ptr_no_checks().get());
  }
  void mark_parameter(c10::StorageImpl* storage) {
    if (has_sole()) told_.mark_parameter(storage->_mutable_data_ptr_no_checks().get());
  }
  void unmark_parameter(c10::StorageImpl* storage) {
    if (is_told_parameter(storage)) told_.add(storage->_mutable_data_ptr_no_checks().get());
  }
  /// All started trackers know the storage now.
  void mark_told(const SeenStorage& seen) {
    if (seen.told_epoch != nullptr) *seen.told_epoch = epoch();
    if (seen.data != nullptr) told_.add(seen.data);
  }
  /// Trackers were started, stopped, made or destroyed: what was told to all no longer was.
  void tell_again() {
    ++epoch_;
    ToldNode::end_all();
    told_.clear();
    find_sole();
  }
  /// Some tracker has other wants than before.
  void find_sole();
  /// Looks at up to `count` weak references.
  void poll(size_t count) {
    if (!parked_.empty()) [[unlikely]]
      poll_parked(count);
  }
  void poll_all() { poll(parked_.size()); }
  /// Calls `visit(id, device, bytes)` for each storage of foreign memory.
  template <typename Visit>
  void visit_foreign(Visit&& visit) const {
    for (const Parked& parked : parked_) {
      const Known& known = parked.known;
      if (parked.is_foreign && known.size_bytes > 0)
        visit(known.id, known.device, known.size_bytes);
    }
  }
  size_t storage_count() const { return by_data_.size() + parked_.size(); }

  /// The CPU allocator has just made this memory; its deleter becomes `deleter()`.
  void record_allocation(c10::DataPtr& data, int64_t size_bytes);
  /// A device allocator tells, of whose memory the deleter is never exchanged.
  void record_device(const DeviceTraceEntry& entry);
  /// Frees memory that is none of ours, if somebody gives it to `deleter()`.
  void set_wrapped_deleter(c10::DeleterFnPtr deleter) { wrapped_deleter_ = deleter; }
  static c10::DeleterFnPtr deleter() { return &free_tracked; }

  // Without the lock.

  /// Changes with `tell_again`.
  uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }
  /// Whether the storage has memory of the CPU allocator, its own, that all started trackers know.
  bool is_told(c10::StorageImpl* storage) const {
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    return is_ours(data.get_deleter()) && told_.contains(data.get());
  }
  /// A meta storage is to be as torch made it: from now on a weak reference tells of its end.
  void give_back(c10::StorageImpl* storage);
  /// Around a change of the storage's memory that goes past the dispatcher.
  void begin_resize();
  void end_resize(c10::StorageImpl* storage);

  /// Around an op of this thread. What it frees is told at its end, for only then is it known which
  /// of it were resizes. The answer, which the others want, lives as long as the thread.
  static Pending& begin_op() {
    ++pending().depth;
    return pending();
  }
  /// With the lock held: `storage` is one that the op has written to.
  void note_written(Pending& open, c10::StorageImpl* storage);
  /// With the lock held: the op is over and its births are told.
  void end_op(Pending& open) {
    --open.depth;
    if (open.freed != nullptr && open.depth == 0) [[unlikely]]
      tell_pending(open);
  }

 private:
  /// What a storage on meta carries.
  struct Claim : Known {
    const void* fake_mode = nullptr;  // compared, never followed
  };
  static Claim* claim_of(c10::StorageImpl* storage);
  struct Parked {
    c10::weak_intrusive_ptr<c10::StorageImpl> reference;
    Known known;
    bool is_foreign;
  };
  StorageCapture();
  static Pending& pending() { return ThreadLocal<Pending>::get(); }
  static Known take_pending(Pending& open, size_t position);
  [[gnu::noinline, gnu::cold]] void tell_pending(Pending& open);

  // Our deleters: what frees the memory after them is looked up, or is known to be torch's own.
  static void free_tracked(void* data);
  static void free_usual(void* data);
  static bool is_ours(c10::DeleterFnPtr deleter) {
    return deleter == &free_usual || deleter == &free_tracked;
  }
  /// The general way of both. Null: nothing was in the table. The answer frees the memory.
  [[gnu::noinline]] c10::DeleterFnPtr end_found(Known* found);
  /// To take the place of `deleter`, if it still is what it was.
  bool exchange_deleter(c10::DataPtr& data, c10::DeleterFnPtr deleter) const {
    return data.compare_exchange_deleter(deleter,
                                         deleter == usual_deleter_ ? &free_usual : &free_tracked);
  }
  bool is_cpu_deleter(c10::DeleterFnPtr deleter) const;
  /// Whether the memory is as the CPU allocator has made it, and its context is itself.
  bool is_fresh(const c10::DataPtr& data) const;
  SeenStorage see_again(Known& known);
  SeenStorage claim(c10::StorageImpl* storage, Known& allocated);
  [[gnu::always_inline]] inline Known& enter_fresh(const c10::StorageImpl& storage,
                                                   c10::DataPtr& data);
  SeenStorage see_fresh(const c10::StorageImpl* storage, c10::DataPtr& data);
  [[gnu::noinline]] SeenStorage see_uncommon(c10::StorageImpl* storage, bool even_empty);
  /// The memory gets a new id.
  [[gnu::always_inline]] Known& enter(const void* data) {
    const auto [known, is_new] = by_data_.insert(data);
    if (!is_new) [[unlikely]]
      end_lost(*known);
    known->id = StorageId(++last_id_);
    return *known;
  }
  /// What was there before went past our deleter, as raw_allocate lets it (oneDNN keeps such
  /// memory, and gives it to whichever allocator is current when it is done).
  [[gnu::noinline, gnu::cold]] void end_lost(Known& known);
  Known forget(Known* known);
  bool is_usual(const c10::StorageImpl& storage, const c10::DataPtr& data) const {
    return data.get_deleter() == usual_deleter_ && data.get() == data.get_context() &&
           storage.nbytes() > 0 && parked_.empty();
  }
  /// Its place in the table; null if its memory is not of the CPU allocator.
  Known* adopt(c10::StorageImpl* storage, Known known);
  SeenStorage see_meta(c10::StorageImpl* storage);
  friend void claim_fake(const at::Tensor& tensor, const void* fake_mode);
  /// The storage of `tensor` counts as being where `whole` says that it is.
  void claim_meta(const at::Tensor& tensor, const at::Tensor& whole, const void* fake_mode);
  void tell_resized(StorageId id, int64_t size_bytes, StorageId allocated = {});
  static void adopt_meta(c10::StorageImpl* storage, const Known& known,
                         const void* fake_mode = nullptr);
  static void free_meta(void* context);
  void poll_parked(size_t count);
  void park(c10::StorageImpl* storage, Known known);
  void unpark(size_t position);
  void finish_resize(c10::StorageImpl* storage, Known known);
  void end_memory(const Known& known);
  void tell_allocated(StorageId id, Device device, int64_t size_bytes);
  void tell_freed(StorageId id);

  static StorageCapture* const instance_;

  // What each op looks at, side by side.
  SpinLock mutex_;
  MemoryTracker* sole_ = nullptr;  // see has_sole
  std::atomic<uint64_t> epoch_{1};
  uint64_t last_id_ = 0;
  const c10::DeleterFnPtr usual_deleter_;  // of torch's own CPU allocator
  FlatTable<Known, &Known::data, 3> by_data_;
  std::vector<Parked> parked_;
  std::vector<MemoryTracker*> trackers_;
  std::atomic<size_t> tracker_count_{0};
  ToldMemory told_;
  c10::DeleterFnPtr wrapped_deleter_ = nullptr;  // of the allocator below the channel
  ska::flat_hash_map<const c10::StorageImpl*, size_t> parked_at_;
  size_t next_poll_ = 0;
  DeviceEvents device_events_;
};

}  // namespace tidegauge
