// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/events/device_events.h"

namespace tidegauge {

/// From now on `record` gets everything that the CUDA caching allocator does. Attached once and for
/// the life of the process: torch has no way to detach.
///
/// Built only where torch has CUDA. UNVERIFIED: no machine with a GPU has run this file; a test
/// checks that it compiles. The receiving side (`record_device` of hooks/unseen_changes.h) is
/// tested with recorded traces.
void attach_cuda_trace(void (*record)(const DeviceTraceEntry&));

}  // namespace tidegauge
