// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>

#include "capture/storages/end_watch.h"
#include "core/util/spin_lock.h"

namespace tidegauge {

/// Watches meta storages, including fake and simulated ones. They have no memory, so their DataPtr
/// can hold our context, which is destroyed with the storage.
class OwnContext final : public EndWatch {
 public:
  OwnContext(SpinLock& lock, EndHandler& handler) : lock_(lock), handler_(handler) {}

  RegisteredStorage* find(c10::StorageImpl& storage) override;
  RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record) override {
    return watch_fake(storage, record, nullptr);
  }
  /// `fake_mode`: the FakeTensorMode of the storage; null: none.
  RegisteredStorage* watch_fake(c10::StorageImpl& storage, const RegisteredStorage& record,
                                const void* fake_mode);
  /// Stops watching: removes our context from the storage.
  static RegisteredStorage release(c10::StorageImpl& storage);

  static bool is_on(const c10::DataPtr& data) { return data.get_deleter() == &free_context; }
  /// The `fake_mode` that was passed to `watch_fake`.
  static const void* fake_mode(c10::StorageImpl& storage);

 private:
  struct Context {
    OwnContext& owner;
    RegisteredStorage record;
    const void* fake_mode;  // compared, never dereferenced
  };
  static Context* context_of(c10::StorageImpl& storage);
  static void free_context(void* context);

  SpinLock& lock_;
  EndHandler& handler_;
};

}  // namespace tidegauge
