// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// From now on, SIGTERM, with which schedulers end a job, completes all recordings before it ends
/// the process. The process still ends by the signal. No effect if the program handles SIGTERM; a
/// handler that it installs later replaces ours.
///
/// The handler only wakes a thread, so this works even if the program is inside a long operation.
/// In a forked child, SIGTERM ends the child at once.
void complete_recordings_at_sigterm();

}  // namespace tidegauge
