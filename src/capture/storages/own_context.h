// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include "capture/storages/end_watch.h"
#include "core/util/spin_lock.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// Watches storages on meta, also fake and simulated ones. They have no memory, so their DataPtr
/// is free to carry a context of ours, which dies with the storage.
class TIDEGAUGE_API OwnContext final : public EndWatch {
 public:
  OwnContext(SpinLock& lock, EndHandler& handler) : lock_(lock), handler_(handler) {}

  RegisteredStorage* find(c10::StorageImpl& storage) override;
  RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record) override {
    return watch_fake(storage, record, nullptr);
  }
  /// `fake_mode`: the FakeTensorMode that the storage belongs to; null: none.
  RegisteredStorage* watch_fake(c10::StorageImpl& storage, const RegisteredStorage& record,
                                const void* fake_mode);
  /// Stops watching: the storage is as torch made it.
  static RegisteredStorage release(c10::StorageImpl& storage);

  static bool is_on(const c10::DataPtr& data) { return data.get_deleter() == &free_context; }
  /// The mode given to `watch_fake`.
  static const void* fake_mode(c10::StorageImpl& storage);

 private:
  struct Context {
    OwnContext& owner;
    RegisteredStorage record;
    const void* fake_mode;  // compared, never followed
  };
  static Context* context_of(c10::StorageImpl& storage);
  static void free_context(void* context);

  SpinLock& lock_;
  EndHandler& handler_;
};

}  // namespace tidegauge
