// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "core/events/device_events.h"
#include "tidegauge/export.h"

/// Changes of memory without an op. Patches of torch's Python and device allocators report them.
namespace tidegauge {

/// Call when a tensor was made without an op.
TIDEGAUGE_API void observe_made(const at::Tensor& tensor);

/// Call around a change of a storage's memory without an op (UntypedStorage.resize_).
TIDEGAUGE_API void begin_resize(c10::StorageImpl* storage);
TIDEGAUGE_API void end_resize(c10::StorageImpl* storage);

/// Call for each entry of a device allocator's trace.
TIDEGAUGE_API void record_device(const DeviceTraceEntry& entry);

/// Makes the allocators of devices report to `record_device`, as soon as they exist. If one cannot,
/// torch warns with the reason, which is also counted as a failure (op_hook.h). Tensors of this
/// device are then observed by their ops alone.
void watch_devices();

}  // namespace tidegauge
