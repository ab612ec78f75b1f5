// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/weak_references.h"

#include <algorithm>
#include <utility>

namespace tidegauge {

RegisteredStorage* WeakReferences::find(c10::StorageImpl& storage) {
  if (watched_.empty()) return nullptr;
  const auto it = positions_.find(&storage);
  return it != positions_.end() ? &watched_[it->second].record : nullptr;
}

RegisteredStorage* WeakReferences::watch(c10::StorageImpl& storage,
                                         const RegisteredStorage& record) {
  positions_[&storage] = watched_.size();
  // The caller holds a reference, so `strong` is never the last one.
  const auto strong = c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(&storage);
  const bool is_foreign = storage.device_type() != c10::kMeta;
  watched_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(strong), record, is_foreign});
  RegisteredStorage& own = watched_.back().record;
  own.storage = &storage;
  own.deleter = nullptr;
  return &own;
}

void WeakReferences::release(const c10::StorageImpl& storage) {
  const auto it = positions_.find(&storage);
  if (it != positions_.end()) remove(it->second);
}

void WeakReferences::remove(size_t position) {
  positions_.erase(watched_[position].record.storage);
  if (position + 1 < watched_.size()) {
    watched_[position] = std::move(watched_.back());
    positions_[watched_[position].record.storage] = position;
  }
  watched_.pop_back();
}

void WeakReferences::poll(size_t count) {
  for (count = std::min(count, watched_.size()); count > 0 && !watched_.empty(); --count) {
    if (next_poll_ >= watched_.size()) next_poll_ = 0;
    if (!watched_[next_poll_].reference.expired()) {
      ++next_poll_;
      continue;
    }
    const RegisteredStorage ended = watched_[next_poll_].record;
    remove(next_poll_);
    handler_.storage_ended(ended);
  }
}

}  // namespace tidegauge
