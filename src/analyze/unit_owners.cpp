// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/unit_owners.h"

#include <map>
#include <string>

namespace tidegauge {

UnitOwners::UnitOwners(EventSource& source) {
  const std::map<UnitId, std::string> units = source.units();
  if (units.empty()) return;
  std::map<std::string, ModuleId> by_name;  // relative to the root; the first of equal names
  for (const TraceModule& module : source.modules()) {
    const size_t dot = module.name.find('.');
    if (module.name.empty()) continue;
    by_name.try_emplace(dot == std::string::npos ? "" : module.name.substr(dot + 1), module.id);
  }
  for (const TraceUnitEvent& each : source.unit_events()) {
    if (each.event.kind != UnitEventKind::StorageOwned) continue;
    const auto unit = units.find(each.event.unit);
    if (unit == units.end()) continue;
    const auto module = by_name.find(unit->second);
    if (module != by_name.end()) modules_[each.event.storage] = module->second;
  }
}

}  // namespace tidegauge
