// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"

namespace tidegauge::compiled_calls {

/// Calls of compiled modules in this thread. Calls below one are not observed, because compiled
/// code calls only some of the modules whose work it does.
TIDEGAUGE_API void begin();
TIDEGAUGE_API void end();
TIDEGAUGE_API bool is_running();

}  // namespace tidegauge::compiled_calls
