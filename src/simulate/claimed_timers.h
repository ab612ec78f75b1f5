// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// DistributedDataParallel measures its first steps with CUDA events, which claimed devices lack.
namespace tidegauge::claimed_timers {

/// Replaces torch's timers of CUDA by ones that measure nothing. Do not call it twice.
void install();
/// Restores torch's own timers.
void uninstall();

}  // namespace tidegauge::claimed_timers
