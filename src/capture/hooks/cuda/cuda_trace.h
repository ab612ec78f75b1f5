// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// From now on StorageCapture is told of all that the CUDA caching allocator does. Attached once
/// and for the life of the process: torch has no way to detach.
///
/// Built only where torch has CUDA. UNVERIFIED: no machine with a GPU has run this file; a test
/// sees that it compiles. What it feeds (`record_device` of track/memory_tracker.h, and there
/// core/events/device_events.h) is tested with recorded traces.
void attach_cuda_trace();

}  // namespace tidegauge
