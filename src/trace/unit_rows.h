// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "trace/database.h"
#include "trace/event_source.h"

namespace tidegauge::trace {

/// The tables `unit_storages` and `unit_changes` of the database `schema` of a connection.
class UnitRows {
 public:
  explicit UnitRows(Database& database, const char* schema = "main");

  /// Reads on, up to the unit events after event `last_sequence`, in order. Invalid rows are left
  /// out.
  std::vector<TraceUnitEvent> read(int64_t last_sequence = std::numeric_limits<int64_t>::max());

 private:
  Statement storages_, changes_;
  int64_t storage_row_ = 0;  // the last one that was read
  int64_t change_row_ = 0;
};

}  // namespace tidegauge::trace
