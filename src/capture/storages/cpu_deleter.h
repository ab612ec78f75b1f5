// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include "capture/storages/end_watch.h"
#include "core/util/spin_lock.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// Watches memory of the CPU allocator: replaces the deleter of its DataPtr by one that reports the
/// end and then calls the old one. Context and data stay as they are, so copy-on-write, sharing and
/// pickling see no difference.
///
/// A deleter gets nothing but the address, so there is one CpuDeleter in a process.
class TIDEGAUGE_API CpuDeleter final : public EndWatch {
 public:
  CpuDeleter(SpinLock& lock, MemoryTable& memory, EndHandler& handler);

  RegisteredStorage* find(c10::StorageImpl& storage) override {
    const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
    return is_ours(data.get_deleter()) ? memory_.find(data.get()) : nullptr;
  }
  RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record) override;

  /// True for memory as the CPU allocator made it, whose context is the memory itself.
  bool is_fresh(const c10::DataPtr& data) const;
  /// True for fresh memory of torch's default allocator: most memory is.
  bool is_usual(const c10::DataPtr& data) const {
    return data.get_deleter() == usual_deleter_ && data.get() == data.get_context();
  }
  static bool is_ours(c10::DeleterFnPtr deleter) {
    return deleter == fast_free_ || deleter == &free_memory;
  }
  /// Replaces the deleter of fresh memory; false if another thread has changed it.
  bool replace_deleter(c10::DataPtr& data) const {
    const c10::DeleterFnPtr deleter = data.get_deleter();
    return data.compare_exchange_deleter(
        deleter, deleter == usual_deleter_ ? usual_replacement_ : &free_memory);
  }
  /// The deleter that replaces all others. An allocator may hand it out as its own.
  static c10::DeleterFnPtr deleter() { return &free_memory; }
  /// The deleter of the allocator below the channel: it frees memory that was allocated before the
  /// channel was opened and is now freed by `deleter()`.
  void set_wrapped_deleter(c10::DeleterFnPtr deleter) { wrapped_deleter_ = deleter; }

  /// Removes the record, reports the end, and returns the deleter that frees the memory. `found`:
  /// the record of the memory; null if there is none.
  c10::DeleterFnPtr end(RegisteredStorage* found);

  /// For capture/fast: a deleter that replaces torch's default one from now on, and how it frees.
  static void set_fast_free(c10::DeleterFnPtr free) { fast_free_ = free; }
  static void use_fast_free(bool is_used) {
    usual_replacement_ = is_used ? fast_free_ : &free_memory;
  }
  void free_usual(void* data) const { usual_deleter_(data); }

 private:
  static void free_memory(void* data);
  bool is_cpu_deleter(c10::DeleterFnPtr deleter) const;

  static CpuDeleter* instance_;
  static c10::DeleterFnPtr fast_free_;          // `free_memory` without capture/fast
  static c10::DeleterFnPtr usual_replacement_;  // for torch's default deleter

  SpinLock& lock_;
  MemoryTable& memory_;
  EndHandler& handler_;
  const c10::DeleterFnPtr usual_deleter_;
  c10::DeleterFnPtr wrapped_deleter_ = nullptr;
};

}  // namespace tidegauge
