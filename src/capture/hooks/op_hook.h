// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <vector>

#include "capture/hooks/op_switch.h"
#include "tidegauge/export.h"

/// Sees every op of the threads that it is started in: by a boxed fallback on our dispatch key
/// (compat/dispatch_key.h), and by typed handlers for the common ops if capture/fast adds them. It
/// follows a backward into the engine's threads by itself.
namespace tidegauge::op_hook {

/// As many stops as starts switch it off (op_switch.h). NotSupported if the key is taken.
Thread start_in_this_thread();

/// Registers further handlers on our key, together with the fallback. Called before the first
/// start, by a static initializer of capture/fast.
using RegisterHandlers = void (*)();
void add_handlers(RegisterHandlers handlers);

/// Failures of our own code while an op ran. They are kept from the program.
TIDEGAUGE_API int64_t failure_count();
TIDEGAUGE_API std::string first_failure();

}  // namespace tidegauge::op_hook
