// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unordered_map>

#include "core/events/ids.h"
#include "trace/event_source.h"

namespace tidegauge {

/// The modules of storages that belong to units of sharded parameters. FSDP2 allocates shards and
/// buffers outside of calls of modules, so no running module explains them; the name of the unit is
/// the name of its module, relative to the root.
class UnitOwners {
 public:
  UnitOwners() = default;
  explicit UnitOwners(EventSource& source);

  /// `running`, or, if it is none, the module of the storage's unit; none if it has no unit.
  ModuleId find(ModuleId running, StorageId storage) const {
    if (running || modules_.empty()) return running;
    const auto found = modules_.find(storage);
    return found == modules_.end() ? running : found->second;
  }

 private:
  std::unordered_map<StorageId, ModuleId> modules_;
};

}  // namespace tidegauge
