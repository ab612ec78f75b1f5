// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/cuda/cuda_trace.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <mutex>

namespace tidegauge {
namespace {

using c10::CachingDeviceAllocator::TraceEntry;

static_assert(static_cast<int>(TraceEntry::ALLOC) == static_cast<int>(TraceAction::Alloc));
static_assert(static_cast<int>(TraceEntry::OOM) == static_cast<int>(TraceAction::OutOfMemory));

using Receiver = void (*)(const DeviceTraceEntry&);
constinit Receiver receiver = nullptr;

/// Called with the lock of the device's allocator held. The StorageRegistry calls no allocator
/// while its own lock is held, so the two cannot wait for each other.
void record(const TraceEntry& entry) {
  receiver({static_cast<TraceAction>(entry.action_), cuda(static_cast<int8_t>(entry.device_)),
            entry.addr_, static_cast<int64_t>(entry.size_),
            reinterpret_cast<uint64_t>(entry.stream_)});
}

}  // namespace

void attach_cuda_trace(void (*to)(const DeviceTraceEntry&)) {
  static std::once_flag once;
  std::call_once(once, [to] {
    receiver = to;
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(&record);
  });
}

}  // namespace tidegauge
