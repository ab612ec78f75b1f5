// SPDX-License-Identifier: BSD-3-Clause
#include "trace/schema.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/events/category.h"
#include "tidegauge/errors.h"
#include "trace/format_version.h"
#include "trace/interrupts.h"

namespace tidegauge::trace {
namespace {

constexpr std::array<std::string_view, 20> kTableNames = {
    "run",      "batches",         "modules",      "ops",
    "tensors",  "stacks",          "categories",   "storages",
    "steps",    "optimizer_steps", "peaks",        "gaps",
    "failures", "live_at_failure", "parameters",   "optimizers",
    "units",    "unit_storages",   "unit_changes", "drops"};

constexpr const char* kDropsTable = R"sql(
CREATE TABLE drops (
  sequence INTEGER PRIMARY KEY,
  events INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  net_events INTEGER NOT NULL,
  begin_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL
);
)sql";

constexpr const char* kTables = R"sql(
CREATE TABLE run (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE batches (
  first_sequence INTEGER PRIMARY KEY,
  event_count INTEGER NOT NULL,
  first_ns INTEGER NOT NULL,
  last_ns INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  events BLOB NOT NULL
);
CREATE TABLE modules (id INTEGER PRIMARY KEY, name TEXT NOT NULL, class TEXT NOT NULL);
CREATE TABLE ops (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE tensors (id INTEGER PRIMARY KEY, dtype TEXT NOT NULL, shape TEXT NOT NULL);
CREATE TABLE stacks (id INTEGER PRIMARY KEY, frames TEXT NOT NULL);
CREATE TABLE categories (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE storages (
  born INTEGER PRIMARY KEY,
  id INTEGER NOT NULL,
  born_ns INTEGER NOT NULL,
  freed INTEGER,
  freed_ns INTEGER,
  size_bytes INTEGER NOT NULL,
  device TEXT NOT NULL,
  category INTEGER NOT NULL,
  step INTEGER NOT NULL,
  module INTEGER,
  op INTEGER,
  tensor INTEGER,
  stack INTEGER
);
CREATE TABLE steps (step INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, begin_ns INTEGER NOT NULL);
CREATE TABLE optimizer_steps (
  begin INTEGER PRIMARY KEY,
  begin_ns INTEGER NOT NULL,
  end INTEGER,
  end_ns INTEGER
);
CREATE TABLE peaks (
  step INTEGER NOT NULL,
  device TEXT NOT NULL,
  category INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  time_ns INTEGER NOT NULL,
  PRIMARY KEY (step, device, category)
) WITHOUT ROWID;
CREATE TABLE gaps (
  sequence INTEGER PRIMARY KEY,
  lost_events INTEGER NOT NULL,
  lost_steps INTEGER NOT NULL,
  begin_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  reason TEXT NOT NULL
);
CREATE TABLE failures (
  id INTEGER PRIMARY KEY,
  sequence INTEGER,
  time_ns INTEGER NOT NULL,
  step INTEGER NOT NULL,
  size_bytes INTEGER,
  device TEXT NOT NULL,
  op TEXT NOT NULL,
  module TEXT NOT NULL,
  message TEXT NOT NULL
);
CREATE TABLE live_at_failure (
  failure INTEGER NOT NULL,
  device TEXT NOT NULL,
  category TEXT NOT NULL,
  module TEXT NOT NULL,
  op TEXT NOT NULL,
  dtype TEXT NOT NULL,
  shape TEXT NOT NULL,
  stack TEXT NOT NULL,
  storage_count INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL
);
CREATE TABLE parameters (
  storage INTEGER NOT NULL,
  module INTEGER NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (storage, module, name)
) WITHOUT ROWID;
CREATE TABLE optimizers (class TEXT PRIMARY KEY, step_count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE units (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE unit_storages (
  sequence INTEGER NOT NULL,
  unit INTEGER NOT NULL,
  storage INTEGER NOT NULL
);
CREATE TABLE unit_changes (
  sequence INTEGER NOT NULL,
  time_ns INTEGER NOT NULL,
  unit INTEGER NOT NULL,
  change TEXT NOT NULL,
  reason TEXT
);
CREATE VIEW allocations AS
  SELECT s.born, s.freed, s.born_ns, s.freed_ns, s.size_bytes, s.device, c.name AS category,
         s.step, m.name AS module, o.name AS op, t.dtype, t.shape, k.frames AS stack, s.id,
         (SELECT coalesce(nullif(w.name, '') || '.', '') || p.name
          FROM parameters p LEFT JOIN modules w ON w.id = p.module
          WHERE p.storage = s.id ORDER BY p.module, p.name LIMIT 1) AS parameter
  FROM storages s
  JOIN categories c ON c.id = s.category
  LEFT JOIN modules m ON m.id = s.module
  LEFT JOIN ops o ON o.id = s.op
  LEFT JOIN tensors t ON t.id = s.tensor
  LEFT JOIN stacks k ON k.id = s.stack;
)sql";

[[noreturn]] void refuse_object(const std::string& path, const std::string& name) {
  throw FormatError(path + " is not a trace that tidegauge has written: " + name +
                    " is not a plain table. Do not open it with other tools");
}

/// Throws FormatError if anything but a table of rows has the name of one of our tables: reading a
/// view, a virtual table or a generated column runs SQL that the file contains.
void check_objects(Database& database, const std::string& path) {
  Statement objects = database.prepare(
      "SELECT lower(name), type, rootpage, CASE WHEN type = 'table' AND rootpage > 0 THEN"
      " (SELECT count(*) FROM pragma_table_xinfo(sqlite_master.name) WHERE hidden <> 0) END"
      " FROM sqlite_master WHERE type IN ('table', 'view')");
  while (objects.step()) {
    const std::string name = objects.text(0);  // SQLite ignores the case of names
    const bool is_ours =
        std::find(kTableNames.begin(), kTableNames.end(), name) != kTableNames.end();
    const bool is_plain =
        objects.text(1) == "table" && objects.integer(2) > 0 && objects.integer(3) == 0;
    if (is_ours && !is_plain) refuse_object(path, name);
  }
}

}  // namespace

void create_schema(Database& database, int64_t version) {
  database.execute(kTables);
  if (version == kVersionWithDrops) database.execute(kDropsTable);
  Statement insert = database.prepare("INSERT INTO categories VALUES (?, ?)");
  for (size_t i = 0; i < kCategoryCount; ++i) {
    insert.bind(0, static_cast<int64_t>(i)).bind(1, to_string(static_cast<Category>(i))).run();
  }
  const std::string numbers = "PRAGMA application_id=" + std::to_string(kApplicationId) +
                              "; PRAGMA user_version=" + std::to_string(version);
  database.execute(numbers.c_str());
}

void check_schema(Database& database, const std::string& path) {
  if (database.query_integer("PRAGMA application_id") != kApplicationId) {
    throw FormatError(path +
                      " is an SQLite database, but not a tidegauge trace; pass a file that"
                      " `tidegauge run` or MemTracker(record=...) has written");
  }
  const int64_t major = database.query_integer("PRAGMA user_version") / 1000;
  if (major < 1 || major > kMajorVersion) {
    throw FormatError(path + " is a trace of format " + std::to_string(major) +
                      "; this version of tidegauge reads up to " + std::to_string(kMajorVersion) +
                      ". Install a newer tidegauge, or record again");
  }
  check_objects(database, path);
}

void throw_read_error(const SqlError& error, const std::string& path) {
  switch (error.code) {
    case SQLITE_INTERRUPT:
      throw Interrupted();
    case SQLITE_NOTADB:
      throw FormatError(path +
                        " is not a tidegauge trace, or its beginning is damaged; pass a file"
                        " that `tidegauge run` or MemTracker(record=...) has written");
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
      throw IoError("cannot open " + path + " (" + error.what() +
                    "); check its permissions, and if the run was killed, copy it together with " +
                    path + "-journal to a folder that you may write to");
    case SQLITE_IOERR:
    case SQLITE_NOMEM:
      throw IoError("cannot read " + path + " (" + error.what() +
                    "); check the disk, or copy the file again");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw IoError(path + " is being written at this moment (" + error.what() + "); try again");
    default:
      throw FormatError(path + " is damaged, cut off, or was changed by another program (" +
                        error.what() +
                        "); copy it again from where it was recorded, or record again");
  }
}

}  // namespace tidegauge::trace
