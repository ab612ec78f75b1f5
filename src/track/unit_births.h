// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/events/ids.h"
#include "tidegauge/export.h"
#include "tidegauge/unit_facts.h"

namespace tidegauge {

/// A new id each time, never 0.
TIDEGAUGE_API UnitId new_unit_id();

/// From now on each storage born in this thread is `fact` to the unit, except in an optimizer step.
/// Nests.
TIDEGAUGE_API void begin_unit_births(UnitId unit, UnitFact fact);
TIDEGAUGE_API void end_unit_births();

struct UnitBirth {
  UnitId unit;  ///< none: births belong to no unit now
  UnitFact fact{};
};
UnitBirth current_unit_birth();

}  // namespace tidegauge
