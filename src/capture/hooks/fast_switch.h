// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"

namespace tidegauge {

/// Enables or disables all fast paths, for tests. No op may run during the call. Returns false if
/// the library was compiled without fast paths.
TIDEGAUGE_API bool enable_fast_paths(bool are_enabled);

/// Set by capture/fast.
void set_fast_switch(void (*fast_switch)(bool are_enabled));

}  // namespace tidegauge
