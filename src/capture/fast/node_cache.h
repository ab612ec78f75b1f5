// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "capture/hooks/running_node.h"

namespace tidegauge::fast {

/// Remembers per thread which running node the listeners were notified of last, so that autograd is
/// asked less and the lock is taken once per node instead of once per op. What is remembered holds
/// until `node_epoch` changes: a listener comes, goes, starts or stops, or a backward ends.

/// Like `notify_running_node`.
RunningNode observe_node();
/// True if a backward runs in this thread.
bool is_in_backward();

void plug_node_cache(bool is_enabled);

}  // namespace tidegauge::fast
