// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"

/// Observes the ops that a user runs under Python's FakeTensorMode. Each op counts once; the ops
/// that it calls do not. The hook wraps the dispatch of an op to Python (compat/python_dispatch.h).
/// It pushes no mode, so it cannot disturb other modes.
///
/// It works in threads in which op_hook is started, for ops of a mode in which a listener was
/// started. So the fake tensors of torch.compile are not counted. Those of DTensor's sharding
/// propagation are not counted either, because op_hook is off during it. While a fake op runs,
/// op_hook is off: the meta tensors of its kernel are not memory.
namespace tidegauge::fake_hook {

/// Lasts until the process ends; only the first call has an effect. The GIL must be held.
void install();

/// Call before a mode is entered in this thread. Installs the hook if op_hook is on in this thread.
/// Not earlier, because the hook makes each call from torch into Python's interpreter longer.
TIDEGAUGE_API void enter_mode();

}  // namespace tidegauge::fake_hook
