// SPDX-License-Identifier: BSD-3-Clause
#include "trace/unit_rows.h"

#include <algorithm>
#include <optional>
#include <string>

namespace tidegauge::trace {
namespace {

Statement select(Database& database, const char* schema, const char* columns, const char* table) {
  const std::string sql = std::string("SELECT rowid, sequence, unit, ") + columns + " FROM " +
                          schema + "." + table + " WHERE rowid > ? ORDER BY rowid";
  return database.prepare(sql.c_str());
}

/// Calls `visit(row)` for the rows after `last_row`, up to the first one after event `sequence`.
template <typename Visit>
void visit_rows(Statement& rows, int64_t& last_row, int64_t sequence, Visit visit) {
  rows.reset();
  rows.bind(0, last_row);
  while (rows.step() && rows.integer(1) <= sequence) {
    last_row = rows.integer(0);
    visit(rows);
  }
  rows.reset();
}

UnitEvent& add(std::vector<TraceUnitEvent>& events, const Statement& row) {
  TraceUnitEvent& added = events.emplace_back();
  added.sequence = static_cast<uint64_t>(std::max<int64_t>(row.integer(1), 0));
  added.event.unit = UnitId(static_cast<uint32_t>(row.integer(2)));
  return added.event;
}

}  // namespace

UnitRows::UnitRows(Database& database, const char* schema)
    : storages_(select(database, schema, "storage", "unit_storages")),
      changes_(select(database, schema, "time_ns, change, reason", "unit_changes")) {}

std::vector<TraceUnitEvent> UnitRows::read(int64_t last_sequence) {
  std::vector<TraceUnitEvent> events;
  visit_rows(storages_, storage_row_, last_sequence, [&](const Statement& row) {
    UnitEvent& event = add(events, row);
    event.kind = UnitEventKind::StorageOwned;
    event.storage = StorageId(static_cast<uint64_t>(row.integer(3)));
  });
  visit_rows(changes_, change_row_, last_sequence, [&](const Statement& row) {
    const auto kind = parse_unit_event_kind(row.text(4));
    const std::optional<GatherReason> reason =
        row.is_null(5) ? GatherReason{} : parse_gather_reason(row.text(5));
    if (!kind || *kind == UnitEventKind::StorageOwned || !reason) return;
    UnitEvent& event = add(events, row);
    event.time_ns = row.integer(3);
    event.kind = *kind;
    event.reason = *reason;
  });
  std::stable_sort(
      events.begin(), events.end(),
      [](const TraceUnitEvent& a, const TraceUnitEvent& b) { return a.sequence < b.sequence; });
  return events;
}

}  // namespace tidegauge::trace
