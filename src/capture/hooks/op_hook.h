// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "capture/hooks/op_switch.h"
#include "core/util/failures.h"
#include "tidegauge/export.h"

/// Observes every op of the threads in which it is started: with a boxed fallback on our dispatch
/// key (compat/dispatch_key.h), and with the typed handlers that capture/fast adds for common ops.
/// Threads of the autograd engine that run a backward for such a thread are observed, too.
namespace tidegauge::op_hook {

/// Calls are counted: after as many `stop_in` (op_switch.h), the thread is no longer observed.
Thread start_in_this_thread();

/// Sets a function that registers more handlers on our key, right after the fallback. A static
/// initializer of capture/fast calls it, before the first start.
using RegisterHandlers = void (*)();
void add_handlers(RegisterHandlers handlers);

/// Failures of our own code that belong to no tracker, of the whole process. The program does not
/// see them.
TIDEGAUGE_API Failures& failures();

}  // namespace tidegauge::op_hook
