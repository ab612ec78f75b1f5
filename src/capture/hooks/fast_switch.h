// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tidegauge/export.h"

namespace tidegauge {

/// For tests, while no op runs: the general path alone, or with the fast paths. False if the
/// library was compiled without them.
TIDEGAUGE_API bool enable_fast_paths(bool are_enabled);

/// Set by capture/fast.
void set_fast_switch(void (*fast_switch)(bool are_enabled));

}  // namespace tidegauge
