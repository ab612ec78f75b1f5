// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"

/// Sees the ops that a user runs under Python's FakeTensorMode, as that mode does: one op at a
/// time, whatever it computes inside. It decorates the dispatch of such an op to Python
/// (compat/python_dispatch.h) and pushes no mode, so it cannot disturb other modes.
///
/// Works in threads in which op_hook is started, and only for ops of a mode in which a listener was
/// started. The fakes of torch.compile count for no listener. Nor do those of DTensor when it works
/// out shardings, because op_hook is off meanwhile. While a fake op of any mode runs, op_hook is
/// off: what its kernel makes on meta is not memory.
namespace tidegauge::fake_hook {

/// Once for the process, and for good. The GIL must be held.
void install();

/// A mode is about to be entered in this thread. Installs if op_hook is on here, and not earlier,
/// because afterwards everything that torch asks of Python's interpreter takes one step more.
TIDEGAUGE_API void enter_mode();

}  // namespace tidegauge::fake_hook
