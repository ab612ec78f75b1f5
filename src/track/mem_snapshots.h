// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "core/events/device.h"
#include "core/ledger/module_stats.h"
#include "core/ledger/snapshot.h"
#include "core/ledger/unit_report.h"
#include "tidegauge/mem_snapshot.h"
#include "tidegauge/unit_memory.h"

namespace tidegauge {

/// Conversions from the ledger's types to the public types, with MemTracker's categories.
c10::Device to_torch(Device device);
MemSnapshot to_mem_snapshot(const Snapshot& snapshot);
UnitMemory to_unit_memory(const UnitReport& unit);
ModMemStats to_mod_mem_stats(const ModuleStats& stats, std::string mod_fqn);

}  // namespace tidegauge
