// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// From now on StorageCapture is told of all that the CUDA caching allocator does. Attached once
/// and for the life of the process: torch has no way to detach.
///
/// Built only where torch has CUDA. UNVERIFIED: no machine with a GPU has run this file. What it
/// feeds (core/device_trace.h, StorageCapture::record_device) is tested with recorded traces.
void attach_cuda_trace();

}  // namespace tidegauge
