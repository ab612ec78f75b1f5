// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/events/device_events.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// Functions of libtidegauge that the CUDA adapter calls. Both may be called in any thread, with a
/// lock of torch's allocator held, so they must not allocate on a device.
struct DeviceTraceReceiver {
  void (*record)(const DeviceTraceEntry& entry);
  void (*fail)(const char* why);
};

}  // namespace tidegauge

/// The only function of libtidegauge_cuda: `receiver` gets everything that torch's CUDA caching
/// allocator does, from now on or from its first allocation. Reports at most one failure, with the
/// reason. Attached once and for the life of the process: torch has no way to detach.
///
/// torch attaches trackers only to the allocators of devices that exist, and these are made when
/// CUDA is initialised. Until then a FreeMemoryCallback waits for the first allocation: torch calls
/// it before it asks the device for memory, and the first request of a process always asks.
///
/// `libc10_cuda`: its handle. Thread-safe.
extern "C" TIDEGAUGE_API void tidegauge_attach_cuda(void* libc10_cuda,
                                                    tidegauge::DeviceTraceReceiver receiver);
