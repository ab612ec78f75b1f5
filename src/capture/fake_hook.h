// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Sees the ops that a user runs under Python's FakeTensorMode, as that mode itself does: one op at
/// a time, whatever it computes inside. Python's dispatch of such an op is decorated; no mode is
/// pushed, so there is nothing to disturb what others do with modes.
///
/// Counts in threads in which op_hook is started, and only ops of a mode in which some tracker was
/// started: the fakes of torch.compile are nobody's. Nor are those of DTensor when it works out
/// shardings, during which op_hook is off (_dtensor_patches.py).
/// While a fake op runs, op_hook is off: what its kernel does on meta is no memory.
namespace tidegauge::fake_hook {

/// The FakeTensorMode on this thread's stack of modes, to be compared; null if there is none.
const void* active_mode();

/// Once for the process, and never taken back: from now on `StorageCapture::is_fake_mode_tracked`
/// is asked at each fake op. The GIL must be held.
void install();

}  // namespace tidegauge::fake_hook
