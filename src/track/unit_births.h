// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "core/events/ids.h"
#include "core/events/unit_event.h"
#include "tidegauge/export.h"
#include "tidegauge/unit_facts.h"

namespace tidegauge {

/// Returns a different id each time, never 0.
TIDEGAUGE_API UnitId new_unit_id();

/// Between these calls, each storage that is born in this thread outside of optimizer steps belongs
/// to the unit, with this fact. Calls nest; the innermost wins.
TIDEGAUGE_API void begin_unit_births(UnitId unit, UnitFact fact);
TIDEGAUGE_API void end_unit_births();

/// Why FSDP2 gathers a unit at this moment. `training_state`: the name of its TrainingState.
TIDEGAUGE_API GatherReason find_gather_reason(std::string_view training_state, bool is_prefetch);

struct UnitBirth {
  UnitId unit;  ///< none: storages that are born now belong to no unit
  UnitFact fact{};
};
UnitBirth current_unit_birth();

}  // namespace tidegauge
