// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge::fast {

/// Births and frees without `ObservedStorage`, for the usual case: the process has one listener, it
/// is started, and it only queues births and frees (CaptureListener::State::log). The op makes one
/// storage with fresh memory from torch's own allocator, and the memory is freed outside of ops.
/// All other cases take the general path.

void plug_sole_listener(bool is_enabled);

}  // namespace tidegauge::fast
