// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge::fast {

/// Straight births and frees for the usual case: one listener in the process, started, that needs
/// only events. An op makes one storage of fresh memory of torch's own allocator; that memory is
/// freed outside of ops. Any other case takes the general path.

void plug_sole_listener(bool is_enabled);

}  // namespace tidegauge::fast
