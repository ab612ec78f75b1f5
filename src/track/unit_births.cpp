// SPDX-License-Identifier: BSD-3-Clause
#include "track/unit_births.h"

#include <atomic>
#include <vector>

#include "capture/hooks/moment_facts.h"

namespace tidegauge {
namespace {

thread_local std::vector<UnitBirth> open_births;

}  // namespace

UnitId new_unit_id() {
  static std::atomic<uint32_t> last{0};
  return UnitId(++last);
}

void begin_unit_births(UnitId unit, UnitFact fact) { open_births.push_back({unit, fact}); }

void end_unit_births() {
  if (!open_births.empty()) open_births.pop_back();
}

GatherReason find_gather_reason(std::string_view training_state, bool is_prefetch) {
  if (is_prefetch) return GatherReason::Prefetch;
  if (training_state == "FORWARD") {
    return moment::in_backward() ? GatherReason::Recompute : GatherReason::Forward;
  }
  // Outside of forward and backward, only the user starts a gather.
  if (training_state == "IDLE") return GatherReason::User;
  return moment::in_recompute() ? GatherReason::Recompute : GatherReason::Backward;
}

UnitBirth current_unit_birth() {
  if (open_births.empty() || moment::in_optimizer_step()) return {};
  return open_births.back();
}

}  // namespace tidegauge
