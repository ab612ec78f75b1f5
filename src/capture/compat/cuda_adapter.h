// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "capture/compat/cuda/cuda_trace.h"

/// Connects us with torch's CUDA allocator, if this process has one.
///
/// libtidegauge must load beside a torch without CUDA, so the code that knows the classes of
/// libc10_cuda is in a library of its own, libtidegauge_cuda, beside libtidegauge. It is loaded
/// when a tracker starts and libc10_cuda is there. All builds of a torch minor version use the same
/// two files.
namespace tidegauge::cuda_adapter {

/// Called at each start of a tracker; does its work once. Until libc10_cuda is loaded, does
/// nothing. A failure, such as a missing file, is reported once to the receiver.
void attach(const DeviceTraceReceiver& receiver);

}  // namespace tidegauge::cuda_adapter
