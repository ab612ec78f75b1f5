// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/listeners.h"

#include "capture/compat/at_every_op.h"

namespace tidegauge {

void Listeners::add(CaptureListener* listener) {
  all_.push_back(listener);
  count_ = all_.size();
  listener_changed();
}

void Listeners::remove(CaptureListener* listener) {
  std::erase(all_, listener);
  count_ = all_.size();
  listener_changed();
}

void Listeners::listener_changed() {
  ++epoch_;
  any_started_ = std::any_of(all_.begin(), all_.end(), [](const CaptureListener* listener) {
    return listener->is_started();
  });
  at_every_op.node_epoch.fetch_add(1, std::memory_order_relaxed);
  if (epoch_observer_ != nullptr) epoch_observer_(*this);
}

bool Listeners::any_started_in(const void* mode) const {
  return std::any_of(all_.begin(), all_.end(), [&](const CaptureListener* listener) {
    return listener->is_started() && listener->state().fake_mode == mode;
  });
}

void Listeners::set_epoch_observer(EpochObserver observer) {
  epoch_observer_ = observer;
  listener_changed();
}

void Listeners::notify_observed(const ObservedStorage& observed, bool was_there_before,
                                uint8_t birth_facts, OpId op, const void* fake_mode) const {
  for (CaptureListener* listener : all_) {
    if (!listener->is_started()) continue;
    if (fake_mode != nullptr && fake_mode != listener->state().fake_mode) continue;
    if (was_there_before || !observed.is_new) {
      listener->storage_found(observed, birth_facts, op);
    } else {
      listener->storage_born(observed, birth_facts, op);
    }
  }
}

void Listeners::notify_allocated(StorageId id, Device device, int64_t size_bytes) const {
  for (CaptureListener* listener : all_) {
    const CaptureListener::State& state = listener->state();
    if (state.is_started && state.counts_allocations) {
      listener->memory_allocated(id, device, size_bytes);
    }
  }
}

void Listeners::notify_memory_gone(StorageId id) const {
  for (CaptureListener* listener : all_) {
    if (listener->state().counts_allocations) listener->storage_resized(id, 0, {});
  }
}

}  // namespace tidegauge
