// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "capture/compat/cuda/cuda_trace.h"

/// Connects us with torch's CUDA allocator, if this process has one.
///
/// libtidegauge must load beside a torch without CUDA, so the code that knows the classes of
/// libc10_cuda is in a separate library, libtidegauge_cuda, in the same folder. A tracker loads it
/// when it starts, if libc10_cuda is loaded. All builds of a torch minor version use the same two
/// files.
namespace tidegauge::cuda_adapter {

/// Called at each start of a tracker; does its work once. Until libc10_cuda is loaded, does
/// nothing. A failure, such as a missing file, is reported once to the receiver.
void attach(const DeviceTraceReceiver& receiver);

}  // namespace tidegauge::cuda_adapter
