// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "core/events/device_events.h"
#include "tidegauge/export.h"

/// Changes of memory that no op shows. Patches of torch's Python and device allocators report them.
namespace tidegauge {

/// A tensor was made without an op, just now.
TIDEGAUGE_API void observe_made(const at::Tensor& tensor);

/// Around a change of a storage's memory without an op (UntypedStorage.resize_).
TIDEGAUGE_API void begin_resize(c10::StorageImpl* storage);
TIDEGAUGE_API void end_resize(c10::StorageImpl* storage);

/// A device allocator reports what it did.
TIDEGAUGE_API void record_device(const DeviceTraceEntry& entry);

}  // namespace tidegauge
