// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"

namespace tidegauge {

/// From now on the operators of the calling thread are seen by every tracker that is entered, by
/// whatever thread; as they are in the thread that entered it, and in backwards that begin there.
/// Counted. NotSupported if another library owns the dispatch key that we need.
TIDEGAUGE_API void attach_thread();
/// Takes one `attach_thread` of this thread back. UsageError if there was none.
TIDEGAUGE_API void detach_thread();

}  // namespace tidegauge
