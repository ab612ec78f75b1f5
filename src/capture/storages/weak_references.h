// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <vector>

#include "capture/storages/end_watch.h"

namespace tidegauge {

/// Watches storages that must not be changed: foreign memory (numpy, shared memory, from_blob,
/// mapped files), storages that were resized to no bytes, and meta storages that were cloned
/// lazily. Keeps a weak reference to each. Every op polls a few of them; a query polls all.
class WeakReferences final : public EndWatch {
 public:
  explicit WeakReferences(EndHandler& handler) : handler_(handler) {}

  RegisteredStorage* find(c10::StorageImpl& storage) override;
  /// Works for every storage. The caller must hold a reference to it.
  RegisteredStorage* watch(c10::StorageImpl& storage, const RegisteredStorage& record) override;
  /// Stops watching. No effect if the storage is not watched.
  void release(const c10::StorageImpl& storage);

  bool empty() const { return watched_.empty(); }
  size_t size() const { return watched_.size(); }
  /// Checks up to `count` references and reports the storages that were destroyed.
  void poll(size_t count);
  /// Calls `visit(record)` for each storage with foreign memory.
  template <typename Visit>
  void visit_foreign(Visit&& visit) const {
    for (const Watched& each : watched_) {
      if (each.is_foreign) visit(each.record);
    }
  }

 private:
  struct Watched {
    c10::weak_intrusive_ptr<c10::StorageImpl> reference;
    RegisteredStorage record;
    bool is_foreign;
  };
  void remove(size_t position);

  EndHandler& handler_;
  std::vector<Watched> watched_;
  ska::flat_hash_map<const c10::StorageImpl*, size_t> positions_;
  size_t next_poll_ = 0;
};

}  // namespace tidegauge
