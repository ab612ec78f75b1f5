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

/// A c10::InferenceMode or another guard that puts back all dispatch keys of its thread, if a
/// tracker was entered or the thread attached within it, ends our watch with its scope, and C++
/// tells nobody. It is taken up again by whatever the thread asks of us next: a module or optimizer
/// scope, a snapshot, entry or exit of a tracker, attach or detach, or by this. Ops between are not
/// seen; what they made is counted, as Other, once an op that is seen uses it. Guards within which
/// nothing is entered or attached do no harm. Nothing for a thread that is not watched.
TIDEGAUGE_API void watch_thread_again();

}  // namespace tidegauge
