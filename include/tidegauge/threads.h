// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"

namespace tidegauge {

/// Makes every entered tracker observe the ops of the calling thread and of the backwards that it
/// starts, as if this thread had entered the tracker. Calls are counted. Throws NotSupported if
/// another library uses the dispatch key that we need.
TIDEGAUGE_API void attach_thread();
/// Undoes one `attach_thread` of this thread. Throws UsageError if there was none.
TIDEGAUGE_API void detach_thread();

/// Resumes the tracking of this thread after a guard has ended it. No effect in a thread that is
/// not tracked.
///
/// c10::InferenceMode and similar guards restore all dispatch keys of the thread when their scope
/// ends. If a tracker was entered, or the thread attached, within such a scope, this ends the
/// tracking, and C++ has no hook to notice it. The thread's next call to tidegauge resumes it: a
/// module or optimizer scope, a snapshot, enter or exit, attach or detach, or this function. Ops in
/// between are not observed; their tensors count as Other once a tracked op uses them.
TIDEGAUGE_API void watch_thread_again();

}  // namespace tidegauge
