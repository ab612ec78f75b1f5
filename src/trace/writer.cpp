// SPDX-License-Identifier: BSD-3-Clause
#include "trace/writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "core/events/event_factory.h"
#include "tidegauge/errors.h"
#include "trace/checksum_vfs.h"
#include "trace/gap.h"
#include "trace/schema.h"

namespace tidegauge::trace {
namespace {

constexpr size_t kBatchEvents = 8192;  // a partial read decodes at least one batch

/// SQLite takes any file of this name for the journal of a trace: it would follow a link, and
/// truncate the file. An empty file is what a killed run left.
bool is_journal_free(const std::string& journal) {
  struct stat there{};
  if (::lstat(journal.c_str(), &there) != 0) return true;
  return S_ISREG(there.st_mode) && there.st_size == 0;
}

int create_file(const std::string& path, bool overwrites) {
  const std::string journal = path + "-journal";
  if (overwrites) {
    ::unlink(journal.c_str());
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      throw IoError("cannot replace the trace " + path + ": " + std::strerror(errno));
    }
  }
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (file >= 0 && is_journal_free(journal)) return file;
  if (file >= 0) {
    ::close(file);
    ::unlink(path.c_str());
    throw IoError("cannot record to " + path + ": " + journal +
                  " exists and may belong to another recording; remove it, or choose another name");
  }
  const int error = errno;
  std::error_code ignored;
  switch (error) {
    case EEXIST:
      throw IoError("the trace " + path +
                    " already exists; choose another name, remove it, or allow overwriting");
    case ENOENT:
    case ENOTDIR:
      // Special folders, such as /proc, exist and still answer ENOENT.
      if (!std::filesystem::is_directory(std::filesystem::absolute(path).parent_path(), ignored)) {
        throw IoError("cannot record to " + path + ": its folder does not exist; create it first");
      }
      [[fallthrough]];
    default:
      throw IoError("cannot record to " + path + ": " + std::strerror(error) +
                    "; choose a folder that you may write to");
  }
}

void bind_optional(Statement& statement, int parameter, int64_t value) {
  if (value != 0) {
    statement.bind(parameter, value);
  } else {
    statement.bind_null(parameter);
  }
}

}  // namespace

void Names::merge(Names&& later) {
  for (auto& [id, module] : later.modules) {
    Module& mine = modules[id];
    mine.name = std::move(module.name);
    if (!module.class_name.empty()) mine.class_name = std::move(module.class_name);
  }
  ops.merge(later.ops);
  tensors.insert(tensors.end(), std::make_move_iterator(later.tensors.begin()),
                 std::make_move_iterator(later.tensors.end()));
  stacks.merge(later.stacks);
  failures.merge(later.failures);
  owned.merge(later.owned);
  for (const auto& [class_name, count] : later.optimizer_steps)
    optimizer_steps[class_name] += count;
  for (auto& [id, name] : later.units) units[id] = std::move(name);
  for (auto& [key, value] : later.facts) facts[key] = std::move(value);
}

TraceWriter::ReservedFile::ReservedFile(std::string path, bool overwrites)
    : path_(std::move(path)), descriptor_(create_file(path_, overwrites)) {}

TraceWriter::ReservedFile::~ReservedFile() { ::close(descriptor_); }

bool TraceWriter::ReservedFile::is_replaced() const {
  struct stat own{};
  struct stat there{};
  if (::fstat(descriptor_, &own) != 0 || own.st_nlink == 0) return true;
  if (::stat(path_.c_str(), &there) != 0) return false;  // renamed: still our file
  return own.st_ino != there.st_ino || own.st_dev != there.st_dev;
}

bool TraceWriter::is_replaced() const { return file_.is_replaced(); }

void TraceWriter::ReservedFile::rename_to(const std::string& path) {
  if (::rename(path_.c_str(), path.c_str()) != 0) {
    throw IoError("cannot rename " + path_ + " to " + path + ": " + std::strerror(errno));
  }
  path_ = path;
}

Database& TraceWriter::database() {
  if (!database_) open_database();
  return *database_;
}

TraceWriter::Statements& TraceWriter::statements() {
  if (!statements_) statements_.emplace(database());
  return *statements_;
}

TraceWriter::TraceWriter(const std::string& path, bool overwrites, int64_t max_file_bytes,
                         const RunFacts& facts, int64_t version) try
    : file_(path, overwrites), max_file_bytes_(max_file_bytes) {
  transact([&] {
    create_schema(database(), version);
    write_facts(facts);
  });
} catch (const SqlError& error) {
  ::unlink(path.c_str());
  throw IoError("cannot record to " + path + ": " + error.what() +
                "; free space on the disk, or choose a path elsewhere");
}

void TraceWriter::open_database() {
  Database database(file_.path(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX);
  sqlite3_busy_timeout(database.handle(), 2000);
  int reserved_bytes = kChecksumBytes;
  sqlite3_file_control(database.handle(), "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved_bytes);
  database.execute("PRAGMA journal_mode=TRUNCATE; PRAGMA locking_mode=NORMAL");
  if (max_file_bytes_ > 0) {
    const int64_t pages = max_file_bytes_ / database.query_integer("PRAGMA page_size");
    const std::string limit =
        "PRAGMA max_page_count=" + std::to_string(std::max<int64_t>(1, pages));
    database.execute(limit.c_str());
  }
  database_.emplace(std::move(database));
}

TraceWriter::Statements::Statements(Database& database)
    : insert_batch(database.prepare("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)")),
      insert_storage(
          database.prepare("INSERT INTO storages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")),
      update_storage(database.prepare(
          "UPDATE storages SET freed=?, freed_ns=?, size_bytes=?, category=?, op=coalesce(?, op),"
          " tensor=coalesce(?, tensor), stack=coalesce(?, stack), module=coalesce(?, module)"
          " WHERE born=?")),
      insert_step(database.prepare("INSERT INTO steps VALUES (?, ?, ?)")),
      begin_optimizer_step(
          database.prepare("INSERT INTO optimizer_steps VALUES (?, ?, NULL, NULL)")),
      end_optimizer_step(
          database.prepare("UPDATE optimizer_steps SET end=?, end_ns=? WHERE begin=?")),
      insert_peak(database.prepare("INSERT OR REPLACE INTO peaks VALUES (?, ?, ?, ?, ?, ?)")) {}

void TraceWriter::move_to(const std::string& path) {
  // The connection names its journal after the path that it was opened with.
  statements_.reset();
  database_.reset();
  ::unlink((file_.path() + "-journal").c_str());  // empty, because nothing is being written
  file_.rename_to(path);
}

template <typename Body>
void TraceWriter::transact(Body body) {
  // The journal beside the path may be that of another process.
  if (is_replaced()) throw SqlError(SQLITE_READONLY, "the file was deleted or replaced");
  database().execute("BEGIN IMMEDIATE");
  try {
    body();
    database().execute("COMMIT");
  } catch (...) {
    // Fails if SQLite has already rolled back, which it does after some errors.
    sqlite3_exec(database().handle(), "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
}

void TraceWriter::write(std::span<const CodedEvent> events, std::span<const PlacedUnitEvent> units,
                        const Names& names, const Gap* gap, const std::string& reason) {
  if (is_stale_) throw SqlError(SQLITE_NOMEM, "out of memory");
  Position position = position_;
  const uint32_t final_step = final_step_;
  try {
    transact([&] {
      write_names(names);
      write_units(units, position.sequence);
      if (gap != nullptr) {
        database()
            .prepare("INSERT OR REPLACE INTO gaps VALUES (?, ?, ?, ?, ?, ?)")
            .bind(0, position.sequence + 1)
            .bind(1, static_cast<int64_t>(gap->lost_events()))
            .bind(2, static_cast<int64_t>(gap->lost_steps()))
            .bind(3, gap->begin_ns())
            .bind(4, gap->end_ns())
            .bind(5, reason)
            .run();
      }
      for (size_t first = 0; first < events.size(); first += kBatchEvents) {
        write_batch(events.subspan(first, std::min(kBatchEvents, events.size() - first)), position);
      }
      write_storages();
      write_peaks();
    });
  } catch (...) {
    const int64_t last = position_.sequence + static_cast<int64_t>(events.size());
    if (events.empty() || !has_event(last)) {
      storages_.roll_back();
      final_step_ = final_step;
      throw;
    }
  }
  position_ = std::move(position);
  // The events are in the file. Without memory to apply them, nothing more can be written.
  is_stale_ = true;
  try {
    storages_.commit();
    for (const CodedEvent& traced : events) ledger_.apply(events::without_modules(traced.event));
    is_stale_ = false;
  } catch (const std::bad_alloc&) {
  }
}

bool TraceWriter::has_event(int64_t sequence) {
  try {
    const int64_t last = database().query_integer(
        "SELECT first_sequence + event_count - 1 FROM batches ORDER BY first_sequence DESC LIMIT "
        "1");
    return last == sequence;
  } catch (const SqlError&) {
    return false;
  }
}

void TraceWriter::write_names(const Names& names) {
  if (names.is_empty()) return;
  Statement module = database().prepare(
      "INSERT INTO modules VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET name=excluded.name,"
      " class=CASE excluded.class WHEN '' THEN class ELSE excluded.class END");
  for (const auto& [id, row] : names.modules) {
    module.bind(0, int64_t{id.value}).bind(1, row.name).bind(2, row.class_name).run();
  }
  Statement op = database().prepare("INSERT OR REPLACE INTO ops VALUES (?, ?)");
  for (const auto& [id, name] : names.ops) op.bind(0, int64_t{id.value}).bind(1, name).run();
  Statement tensor = database().prepare("INSERT OR REPLACE INTO tensors VALUES (?, ?, ?)");
  for (const auto& [id, dtype, shape] : names.tensors) {
    tensor.bind(0, int64_t{id}).bind(1, dtype).bind(2, shape).run();
  }
  Statement stack = database().prepare("INSERT OR REPLACE INTO stacks VALUES (?, ?)");
  for (const auto& [id, frames] : names.stacks) {
    stack.bind(0, int64_t{id.value}).bind(1, frames).run();
  }
  Statement owned = database().prepare("INSERT OR IGNORE INTO parameters VALUES (?, ?, ?)");
  for (const auto& [storage, owner, name] : names.owned) {
    owned.bind(0, static_cast<int64_t>(storage.value))
        .bind(1, int64_t{owner.value})
        .bind(2, name)
        .run();
  }
  Statement optimizer = database().prepare(
      "INSERT INTO optimizers VALUES (?, ?) ON CONFLICT (class) DO UPDATE SET"
      " step_count=step_count+excluded.step_count");
  for (const auto& [class_name, count] : names.optimizer_steps) {
    optimizer.bind(0, class_name).bind(1, count).run();
  }
  Statement unit = database().prepare("INSERT OR REPLACE INTO units VALUES (?, ?)");
  for (const auto& [id, name] : names.units) unit.bind(0, int64_t{id.value}).bind(1, name).run();
  for (const auto& [id, post_mortem] : names.failures) write_failure(id, post_mortem);
  write_facts(names.facts);
}

void TraceWriter::write_units(std::span<const PlacedUnitEvent> units, int64_t sequence) {
  if (units.empty()) return;
  Statement storage = database().prepare("INSERT INTO unit_storages VALUES (?, ?, ?)");
  Statement change = database().prepare("INSERT INTO unit_changes VALUES (?, ?, ?, ?, ?)");
  for (const auto& [event, after] : units) {
    const int64_t last_sequence = sequence + static_cast<int64_t>(after);
    if (event.kind == UnitEventKind::StorageOwned) {
      storage.bind(0, last_sequence)
          .bind(1, int64_t{event.unit.value})
          .bind(2, static_cast<int64_t>(event.storage.value))
          .run();
      continue;
    }
    change.bind(0, last_sequence).bind(1, event.time_ns).bind(2, int64_t{event.unit.value});
    change.bind(3, to_string(event.kind));
    if (event.kind == UnitEventKind::GatherBegun) {
      change.bind(4, to_string(event.reason));
    } else {
      change.bind_null(4);
    }
    change.run();
  }
}

void TraceWriter::write_failure(uint32_t id, const PostMortem& post_mortem) {
  Statement failure =
      database().prepare("INSERT OR REPLACE INTO failures VALUES (?, NULL, ?, ?, ?, ?, ?, ?, ?)");
  failure.bind(0, int64_t{id}).bind(1, post_mortem.time_ns).bind(2, int64_t{post_mortem.step});
  if (post_mortem.failed.size_bytes) {
    failure.bind(3, *post_mortem.failed.size_bytes);
  } else {
    failure.bind_null(3);
  }
  failure.bind(4, post_mortem.failed.device)
      .bind(5, post_mortem.op)
      .bind(6, post_mortem.module)
      .bind(7, post_mortem.message)
      .run();
  Statement live =
      database().prepare("INSERT INTO live_at_failure VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (const LiveGroup& group : post_mortem.live) {
    live.bind(0, int64_t{id})
        .bind(1, group.device)
        .bind(2, to_string(group.category))
        .bind(3, group.module)
        .bind(4, group.op)
        .bind(5, group.dtype)
        .bind(6, group.shape)
        .bind(7, group.stack)
        .bind(8, group.storage_count)
        .bind(9, group.size_bytes)
        .run();
  }
}

void TraceWriter::write_batch(std::span<const CodedEvent> events, Position& position) {
  const std::vector<uint8_t> bytes = encode_batch(events);
  statements()
      .insert_batch.bind(0, position.sequence + 1)
      .bind(1, static_cast<int64_t>(events.size()))
      .bind(2, events.front().event.time_ns)
      .bind(3, events.back().event.time_ns)
      .bind(4, checksum(bytes))
      .bind(5, std::span<const uint8_t>(bytes))
      .run();
  for (const CodedEvent& traced : events) {
    const Event& event = traced.event;
    const bool was_in_optimizer = position.optimizer_depth > 0;
    position.advance(event);
    storages_.apply(traced, position);
    if (event.kind == EventKind::AllocationFailed) {
      database()
          .prepare("UPDATE failures SET sequence=? WHERE id=?")
          .bind(0, position.sequence)
          .bind(1, int64_t{traced.tensor})
          .run();
    }
    if (event.kind == EventKind::StepMarker) {
      statements()
          .insert_step.bind(0, position.step)
          .bind(1, position.sequence)
          .bind(2, event.time_ns)
          .run();
    }
    const bool is_in_optimizer = position.optimizer_depth > 0;
    if (is_in_optimizer && !was_in_optimizer) {
      statements().begin_optimizer_step.bind(0, position.sequence).bind(1, event.time_ns).run();
    } else if (was_in_optimizer && !is_in_optimizer) {
      statements()
          .end_optimizer_step.bind(0, position.sequence)
          .bind(1, event.time_ns)
          .bind(2, position.optimizer_begin)
          .run();
    }
  }
}

void TraceWriter::write_storages() {
  for (const StorageRow& row : storages_.born()) {
    Statement& insert = statements().insert_storage;
    insert.bind(0, row.born).bind(1, static_cast<int64_t>(row.id.value)).bind(2, row.born_ns);
    bind_optional(insert, 3, row.freed);
    if (row.freed != 0) {
      insert.bind(4, row.freed_ns);
    } else {
      insert.bind_null(4);
    }
    insert.bind(5, row.size_bytes).bind(6, to_string(row.device));
    insert.bind(7, static_cast<int64_t>(row.category)).bind(8, row.step);
    bind_optional(insert, 9, row.module.value);
    bind_optional(insert, 10, row.op.value);
    bind_optional(insert, 11, row.tensor);
    bind_optional(insert, 12, row.stack);
    insert.run();
  }
  for (const StorageRow& row : storages_.changed()) {
    Statement& update = statements().update_storage;
    bind_optional(update, 0, row.freed);
    if (row.freed != 0) {
      update.bind(1, row.freed_ns);
    } else {
      update.bind_null(1);
    }
    update.bind(2, row.size_bytes).bind(3, static_cast<int64_t>(row.category));
    bind_optional(update, 4, row.op.value);
    bind_optional(update, 5, row.tensor);
    bind_optional(update, 6, row.stack);
    bind_optional(update, 7, row.module.value);
    update.bind(8, row.born).run();
  }
}

void TraceWriter::write_peaks() {
  database().execute("DELETE FROM peaks WHERE step = 0");
  write_peak(0, ledger_.peak());
  for (const StepPeak& peak : ledger_.step_peaks()) {
    if (peak.step <= final_step_) continue;
    database().prepare("DELETE FROM peaks WHERE step = ?").bind(0, int64_t{peak.step}).run();
    write_peak(peak.step, peak.bytes);
  }
  // Late labels may still change the split of a step that just ended, so the rows of the last steps
  // are written again later.
  if (ledger_.now().step > 2) final_step_ = ledger_.now().step - 2;
}

void TraceWriter::write_peak(int64_t step, const Snapshot& snapshot) {
  for (const DeviceSplit& device : snapshot.devices) {
    for (size_t i = 0; i < kCategoryCount; ++i) {
      if (device.split.bytes[i] == 0) continue;
      statements()
          .insert_peak.bind(0, step)
          .bind(1, to_string(device.device))
          .bind(2, static_cast<int64_t>(i))
          .bind(3, device.split.bytes[i])
          .bind(4, static_cast<int64_t>(device.at.sequence))
          .bind(5, device.at.time_ns)
          .run();
    }
  }
}

void TraceWriter::write_facts(const RunFacts& facts) {
  Statement insert = database().prepare("INSERT OR REPLACE INTO run VALUES (?, ?)");
  for (const auto& [key, value] : facts) insert.bind(0, key).bind(1, value).run();
}

void TraceWriter::write_final_gap(uint64_t lost_events, const std::string& reason) {
  transact([&] {
    database()
        .prepare("INSERT OR REPLACE INTO gaps VALUES (?, ?, 0, 0, 0, ?)")
        .bind(0, position_.sequence + 1)
        .bind(1, static_cast<int64_t>(lost_events))
        .bind(2, reason)
        .run();
  });
}

void TraceWriter::write_summary(const RunFacts& facts) {
  transact([&] {
    if (!is_stale_) write_peaks();
    write_facts(facts);
  });
  database().execute("PRAGMA journal_mode=DELETE");  // removes the empty journal file
}

}  // namespace tidegauge::trace
