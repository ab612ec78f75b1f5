// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/allocator_channel.h"

#include <algorithm>
#include <atomic>

#include "capture/hooks/simulated_depth.h"
#include "capture/storages/storage_registry.h"

namespace tidegauge {
namespace {

c10::Allocator* current() { return c10::GetAllocator(c10::kCPU); }

/// Sets the allocator at the priority of the current one. That priority cannot be read, only found
/// by trying. A higher priority would shut out other allocators for the rest of the process.
void replace_current(c10::Allocator* allocator) {
  for (int priority = 0; priority <= UINT8_MAX; ++priority) {
    c10::SetAllocator(c10::kCPU, allocator, static_cast<uint8_t>(priority));
    if (current() == allocator) return;
  }
}

}  // namespace

class AllocatorChannel::Layer final : public c10::Allocator {
 public:
  explicit Layer(c10::Allocator* below) : below_(below) {}

  c10::DataPtr allocate(size_t size_bytes) override {
    c10::DataPtr data = below_->allocate(size_bytes);
    // A simulated op allocates only for the simulation.
    if (is_counting_.load(std::memory_order_acquire) && !SimulatedDepth::any()) {
      const auto lock = StorageRegistry::lock();
      StorageRegistry::get().record_allocation(data, static_cast<int64_t>(size_bytes));
    }
    return data;
  }

  c10::DeleterFnPtr raw_deleter() const override {
    const c10::DeleterFnPtr below = below_->raw_deleter();
    const bool is_ours = below != nullptr && is_counting_.load(std::memory_order_acquire);
    return is_ours ? CpuDeleter::deleter() : below;
  }

  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return below_->is_simple_data_ptr(data);
  }

  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    below_->copy_data(to, from, size_bytes);
  }

  c10::Allocator* below() const { return below_; }

  void set_counting(bool on) {
    if (on) {
      const auto lock = StorageRegistry::lock();
      StorageRegistry::get().cpu_deleter().set_wrapped_deleter(below_->raw_deleter());
    }
    is_counting_.store(on, std::memory_order_release);
  }

 private:
  c10::Allocator* const below_;
  std::atomic<bool> is_counting_{false};
};

AllocatorChannel& AllocatorChannel::get() {
  static auto* channel = new AllocatorChannel;
  return *channel;
}

void AllocatorChannel::open() {
  const std::lock_guard lock(mutex_);
  ++open_count_;
  c10::Allocator* below = current();
  if (Layer* counting = counting_) {
    if (below == counting) return;
    // Another allocator was put on top, and it may or may not call our layer. A new layer above
    // both counts everything.
    counting->set_counting(false);
  }
  Layer* layer = find_layer(below);  // found if the allocator on top of our layer was removed
  if (layer == nullptr) {
    const auto same = std::find_if(layers_.begin(), layers_.end(),
                                   [&](const Layer* each) { return each->below() == below; });
    layer = same != layers_.end() ? *same : layers_.emplace_back(new Layer(below));
    replace_current(layer);
  }
  layer->set_counting(true);
  counting_ = layer;
  is_open_.store(true, std::memory_order_release);
}

void AllocatorChannel::close(int count) {
  const std::lock_guard lock(mutex_);
  open_count_ -= count;
  if (open_count_ > 0) return;
  is_open_ = false;
  counting_.exchange(nullptr)->set_counting(false);
  while (const Layer* top = find_layer(current())) replace_current(top->below());
}

void AllocatorChannel::exchange_allocator(c10::StorageImpl* storage) const noexcept {
  Layer* layer = counting_;
  if (layer != nullptr && storage->allocator() == layer->below()) storage->set_allocator(layer);
}

AllocatorChannel::Layer* AllocatorChannel::find_layer(const c10::Allocator* allocator) const {
  const auto it = std::find(layers_.begin(), layers_.end(), allocator);
  return it != layers_.end() ? *it : nullptr;
}

}  // namespace tidegauge
