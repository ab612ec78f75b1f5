// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/device_trace.h"

namespace tidegauge {

/// A simulated allocator that records what torch would: a snapshot with any settings, without a
/// device.
class Recording {
 public:
  explicit Recording(AllocatorOptions options = {}) : allocator_(watched(std::move(options))) {}

  Block* malloc(int64_t size_bytes, int64_t stream = 0, PoolId pool = {}) {
    Block* block = allocator_.malloc(size_bytes, stream, pool);
    if (block == nullptr) {
      events_.push_back({TraceAction::OutOfMemory, 0, size_bytes, stream, pool});
    } else {
      events_.push_back({TraceAction::Alloc, block->address, size_bytes, stream, pool});
    }
    return block;
  }

  void free(Block* block) {
    note(TraceAction::FreeRequested, *block);
    if (!block->has_other_streams) note(TraceAction::FreeCompleted, *block);
    allocator_.free(block);
  }

  void complete_free(Block* block) {
    note(TraceAction::FreeCompleted, *block);
    allocator_.complete_free(block);
  }

  CachingAllocator& allocator() { return allocator_; }
  const std::vector<TraceEvent>& events() const { return events_; }

  /// The events from number `first` on, as a ring buffer would keep them.
  DeviceTrace trace(size_t first = 0) const {
    return {{events_.begin() + static_cast<ptrdiff_t>(first), events_.end()}, allocator_.layout()};
  }

 private:
  AllocatorOptions watched(AllocatorOptions options) {
    options.on_segment_event = [this](const TraceEvent& event) { events_.push_back(event); };
    options.deferred = DeferredFrees::ByCaller;
    return options;
  }

  void note(TraceAction action, const Block& block) {
    const Shelf& shelf = *block.segment->shelf;
    const PrivatePool* owner = shelf.pool->owner;
    events_.push_back({action, block.address, block.requested_bytes, shelf.stream,
                       owner != nullptr ? owner->id : PoolId{}});
  }

  std::vector<TraceEvent> events_;
  CachingAllocator allocator_;
};

}  // namespace tidegauge
