// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "tidegauge/export.h"

/// Sees the ops that a user runs under Python's FakeTensorMode, as that mode itself does: one op at
/// a time, whatever it computes inside. Python's dispatch of such an op is decorated; no mode is
/// pushed, so there is nothing to disturb what others do with modes.
///
/// Counts in threads in which op_hook is started, and only ops of a mode in which some tracker was
/// started: the fakes of torch.compile are nobody's. Nor are those of DTensor when it works out
/// shardings, during which op_hook is off (_torch/dtensor_patches.py).
/// While a fake op of whatever mode runs, op_hook is off: what its kernel does on meta is no
/// memory.
namespace tidegauge::fake_hook {

/// The FakeTensorMode on this thread's stack of modes, to be compared; null if there is none.
const void* active_mode();

/// The mode of a fake tensor, likewise; null for any other tensor. May take the GIL.
const void* mode_of(const at::Tensor& tensor);

/// Python is there, and this is how to ask it for the mode of a tensor.
TIDEGAUGE_API void connect_python(const void* (*find_mode)(const at::Tensor&));

/// Once for the process, and never taken back: from now on `StorageCapture::is_fake_mode_tracked`
/// is asked at each fake op. The GIL must be held.
void install();

/// A mode is about to be entered in this thread. Installs if op_hook is on here: no sooner, for
/// then all that torch asks of Python's interpreter takes a step more.
TIDEGAUGE_API void enter_mode();

}  // namespace tidegauge::fake_hook
