// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include "capture/storages/end_watch.h"
#include "core/util/spin_lock.h"

namespace tidegauge {

/// Watches memory of the CPU allocator. It replaces the deleter of the DataPtr by one that reports
/// the end and then calls the original. Context and data do not change, so copy-on-write, sharing
/// and pickling work as before.
///
/// A deleter receives only the address, so a process has one CpuDeleter.
class CpuDeleter final : public EndWatch {
 public:
  CpuDeleter(SpinLock& lock, MemoryTable& memory, EndHandler& handler);

  RegisteredStorage* find(c10::StorageImpl& storage) override {
    const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
    return is_ours(data.get_deleter()) ? memory_.find(data.get()) : nullptr;
  }
  RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record) override;

  /// True if the memory still has the deleter of the CPU allocator, and the context is the memory
  /// itself.
  bool is_fresh(const c10::DataPtr& data) const;
  /// True for fresh memory of torch's default allocator, the most common kind.
  bool is_usual(const c10::DataPtr& data) const {
    return data.get_deleter() == usual_deleter_ && data.get() == data.get_context();
  }
  static bool is_ours(c10::DeleterFnPtr deleter) {
    return deleter == fast_free_ || deleter == &free_memory;
  }
  /// Replaces the deleter of fresh memory. Returns false if another thread has changed it
  /// meanwhile.
  bool replace_deleter(c10::DataPtr& data) const {
    const c10::DeleterFnPtr deleter = data.get_deleter();
    return data.compare_exchange_deleter(
        deleter, deleter == usual_deleter_ ? usual_replacement_ : &free_memory);
  }
  /// Our general deleter. The allocator channel also returns it from raw_deleter().
  static c10::DeleterFnPtr deleter() { return &free_memory; }
  /// Sets the deleter of the allocator below the channel. `deleter()` uses it for memory that was
  /// allocated before the channel opened.
  void set_wrapped_deleter(c10::DeleterFnPtr deleter) { wrapped_deleter_ = deleter; }

  /// Removes the record of memory that is being freed, reports the end, and returns the deleter
  /// that frees the memory. `found` may be null.
  c10::DeleterFnPtr end(RegisteredStorage* found);

  /// For capture/fast: the deleter that replaces torch's default one, whether it is used from now
  /// on, and the function with which it frees the memory.
  static void set_fast_free(c10::DeleterFnPtr free) { fast_free_ = free; }
  static void use_fast_free(bool is_used) {
    usual_replacement_ = is_used ? fast_free_ : &free_memory;
  }
  void free_usual(void* data) const { usual_deleter_(data); }

 private:
  static void free_memory(void* data);
  bool is_cpu_deleter(c10::DeleterFnPtr deleter) const;

  static CpuDeleter* instance_;
  static c10::DeleterFnPtr fast_free_;          // `free_memory` unless capture/fast sets another
  static c10::DeleterFnPtr usual_replacement_;  // replaces torch's default deleter

  SpinLock& lock_;
  MemoryTable& memory_;
  EndHandler& handler_;
  const c10::DeleterFnPtr usual_deleter_;
  c10::DeleterFnPtr wrapped_deleter_ = nullptr;
};

}  // namespace tidegauge
