// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "capture/hooks/op_watch.h"

namespace tidegauge::fast {

/// Births and frees without `ObservedStorage`, for the usual case: the process has one listener, it
/// is started, and it only queues births and frees (CaptureListener::State::log). The op makes one
/// storage with fresh memory from torch's own allocator, and the memory is freed outside of ops.
/// All other cases take the general path.

/// Call when an op with one result has run: the end of `watch_boxed` (hooks/boxed_op.h).
void finish(OpWatch& watch, const at::Tensor& result) noexcept;

void plug_sole_listener(bool is_enabled);

}  // namespace tidegauge::fast
