// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/kernel_requests.h"

#include "capture/compat/torch_device.h"
#include "capture/hooks/moment_facts.h"
#include "capture/storages/storage_registry.h"

namespace tidegauge {

KernelRequests& KernelRequests::of_this_op() {
  thread_local KernelRequests requests;
  return requests;
}

KernelRequests::Handle KernelRequests::request(int64_t size_bytes) {
  steps_.push_back({Kind::Request, handle_count_, size_bytes});
  return handle_count_++;
}

void KernelRequests::release(Handle handle) { steps_.push_back({Kind::Release, handle, 0}); }

void KernelRequests::release_all_from(Handle first) {
  for (Handle handle = handle_count_; handle > first; --handle) release(handle - 1);
}

void KernelRequests::result(size_t position) {
  steps_.push_back({Kind::Result, static_cast<uint32_t>(position), 0});
}

void KernelRequests::restart(bool wanted) {
  steps_.clear();
  handle_count_ = 0;
  is_wanted_ = wanted;
}

void KernelRequests::notify(const Step& step, const OpWatch& watch) {
  StorageRegistry& registry = StorageRegistry::get();
  if (step.kind == Kind::Release) {
    if (ids_[step.number]) registry.listeners().notify_freed(ids_[step.number], false);
    return;
  }
  if (step.size_bytes <= 0) return;
  ids_[step.number] = registry.next_id();
  const ObservedStorage observed{
      .id = ids_[step.number], .size_bytes = step.size_bytes, .device = to_device(device_)};
  const auto facts =
      static_cast<uint8_t>(moment::birth_facts(watch.running().task) | kFromAllocator);
  for (CaptureListener* listener : registry.listeners().all()) {
    const CaptureListener::State& state = listener->state();
    if (!state.is_started || !state.counts_allocations) continue;
    listener->storage_born(observed, facts, op_id(watch.facts()));
  }
}

}  // namespace tidegauge
