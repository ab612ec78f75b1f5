// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// All public headers of tidegauge for libtorch programs.
#include "tidegauge/errors.h"          // IWYU pragma: export
#include "tidegauge/fit.h"             // IWYU pragma: export
#include "tidegauge/mem_snapshot.h"    // IWYU pragma: export
#include "tidegauge/mem_tracker.h"     // IWYU pragma: export
#include "tidegauge/mod_tracker.h"     // IWYU pragma: export
#include "tidegauge/module_scope.h"    // IWYU pragma: export
#include "tidegauge/optimizer_step.h"  // IWYU pragma: export
#include "tidegauge/reader.h"          // IWYU pragma: export
#include "tidegauge/sharded_unit.h"    // IWYU pragma: export
#include "tidegauge/simulation.h"      // IWYU pragma: export
#include "tidegauge/threads.h"         // IWYU pragma: export
#include "tidegauge/unit_memory.h"     // IWYU pragma: export
