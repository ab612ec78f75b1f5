// SPDX-License-Identifier: BSD-3-Clause
#include "trace/reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/util/module_path.h"
#include "tidegauge/errors.h"
#include "trace/database.h"
#include "trace/event_codec.h"
#include "trace/interrupts.h"
#include "trace/schema.h"
#include "trace/unit_rows.h"

namespace tidegauge {

using trace::CodedEvent;
using trace::Database;
using trace::SqlError;
using trace::Statement;

namespace {

/// The full name of a parameter, where `p` is its row in `parameters` and `w` its owner's row in
/// `modules`.
constexpr const char* kParameterName = "coalesce(nullif(w.name, '') || '.', '') || p.name";

}  // namespace

class Reader::Impl {
 public:
  explicit Impl(std::string path) : path_(std::move(path)) {
    if (::access(path_.c_str(), R_OK) != 0) {
      throw IoError("cannot read " + path_ + ": " + std::strerror(errno) + "; check the path");
    }
    struct stat facts{};
    if (::stat(path_.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) {
      throw IoError(path_ + " is a folder; pass a trace file");
    }
    if (!S_ISREG(facts.st_mode)) {  // opening a pipe would wait for a writer
      throw IoError(path_ + " is not a regular file; copy its content to one");
    }
    if (facts.st_size == 0) {
      throw FormatError(path_ + " is empty; record again, or copy the file again");
    }
    read([&] {
      // A run that was killed while it wrote a batch leaves a journal. Undoing that batch needs
      // write access.
      const bool is_writable = ::access(path_.c_str(), W_OK) == 0;
      database_.emplace(path_, is_writable ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY);
      sqlite3_busy_timeout(database_->handle(), 10'000);
      limit_reads();
      trace::check_schema(*database_, path_);
      database_->execute("PRAGMA query_only=ON");
    });
  }

  /// A file may contain any SQL, and any number of rows.
  void limit_reads() {
    sqlite3* handle = database_->handle();
    database_->execute("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON");
    for (const int unused : {SQLITE_DBCONFIG_ENABLE_TRIGGER, SQLITE_DBCONFIG_ENABLE_VIEW}) {
      sqlite3_db_config(handle, unused, 0, nullptr);
    }
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    constexpr int kLongestValueBytes = 64 << 20;  // a batch has up to 1 MB
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kLongestValueBytes);
    constexpr int kInstructionsBetween = 10'000;
    sqlite3_progress_handler(
        handle, kInstructionsBetween,
        [](void* clock) {
          return static_cast<trace::InterruptClock*>(clock)->is_interrupted() ? 1 : 0;
        },
        &clock_);
  }

  /// Runs `body` and turns errors of SQLite into errors about the file.
  template <typename Body>
  void read(Body body) {
    try {
      body();
    } catch (const SqlError& error) {
      trace::throw_read_error(error, path_);
    }
  }

  template <typename Visit>
  void query(const char* sql, Visit visit) {
    read([&] {
      Statement statement = database_->prepare(sql);
      while (statement.step()) visit(statement);
    });
  }

  /// Calls `visit(events, sequence number of the first)` for each batch, cut to `first` and `last`.
  template <typename Visit>
  void visit_batches(uint64_t first, uint64_t last, const Visit& visit) {
    const uint64_t largest = std::numeric_limits<int64_t>::max();
    first = std::clamp<uint64_t>(first, 1, largest);
    last = std::min(last, largest);
    ++pass_count_;
    read([&] {
      Statement batches = database_->prepare(
          "SELECT first_sequence, event_count, checksum, events FROM batches WHERE first_sequence "
          ">="
          " (SELECT coalesce(max(first_sequence), 1) FROM batches WHERE first_sequence <= ?)"
          " AND first_sequence <= ? ORDER BY first_sequence");
      batches.bind(0, static_cast<int64_t>(first)).bind(1, static_cast<int64_t>(last));
      uint64_t expected = 0;
      while (batches.step()) {
        if (clock_.is_interrupted()) throw Interrupted();
        const uint64_t sequence = decode(batches, expected);
        expected = sequence + events_.size();
        const uint64_t begin = std::clamp(first, sequence, expected);
        const uint64_t end = std::clamp(last + 1, begin, expected);
        if (begin == end) continue;
        visit(std::span(events_).subspan(begin - sequence, end - begin), begin);
      }
    });
  }

  template <typename Visit>
  void visit(uint64_t first, uint64_t last, const Visit& visit) {
    visit_batches(first, last, [&](std::span<const CodedEvent> events, uint64_t sequence) {
      for (const CodedEvent& traced : events) visit(traced, sequence++);
    });
  }

  uint64_t pass_count() const { return pass_count_; }
  Database& database() { return *database_; }

  /// Files of format 1.0 do not have all tables.
  bool has_table(std::string_view name) {
    bool is_there = false;
    read([&] {
      Statement query = database_->prepare("SELECT 1 FROM sqlite_master WHERE name = ?");
      is_there = query.bind(0, name).step();
    });
    return is_there;
  }

 private:
  /// Fills events_ and returns the sequence number of the first one.
  uint64_t decode(const Statement& batch, uint64_t expected) {
    const auto sequence = static_cast<uint64_t>(batch.integer(0));
    const std::span<const uint8_t> bytes = batch.blob(3);
    events_.clear();
    // A second pass reads the same bytes, so their checksum need not be checked again.
    const bool is_checked = sequence < first_unchecked_;
    if ((!is_checked && batch.integer(2) != trace::checksum(bytes)) ||
        !trace::decode_batch(bytes, static_cast<uint64_t>(batch.integer(1)), events_)) {
      throw_damaged(sequence);
    }
    if (expected != 0 && sequence != expected) throw_damaged(expected);
    if (sequence == first_unchecked_) first_unchecked_ += events_.size();
    return sequence;
  }

  [[noreturn]] void throw_damaged(uint64_t sequence) const {
    throw FormatError(path_ + " is damaged: the batch of event " + std::to_string(sequence) +
                      " in its table batches cannot be read; copy the file again from where it was"
                      " recorded, or record again");
  }

  const std::string path_;
  trace::InterruptClock clock_;
  std::optional<Database> database_;
  std::vector<CodedEvent> events_;  // the events of one batch
  uint64_t first_unchecked_ = 1;    // the checksums of all earlier batches were correct
  uint64_t pass_count_ = 0;
};

Reader::Reader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}

Reader::~Reader() = default;

std::map<std::string, std::string> Reader::run_facts() {
  std::map<std::string, std::string> facts;
  impl_->query("SELECT key, value FROM run",
               [&](const Statement& row) { facts[row.text(0)] = row.text(1); });
  return facts;
}

bool Reader::is_complete() { return run_facts().contains("ended"); }

uint64_t Reader::event_count() {
  int64_t count = 0;
  impl_->query(
      "SELECT first_sequence, event_count FROM batches ORDER BY first_sequence DESC LIMIT 1",
      [&](const Statement& row) { count = row.integer(0) + row.integer(1) - 1; });
  return static_cast<uint64_t>(std::max<int64_t>(count, 0));
}

std::vector<TraceGap> Reader::gaps() {
  std::vector<TraceGap> gaps;
  impl_->query(
      "SELECT sequence, lost_events, lost_steps, begin_ns, end_ns, reason FROM gaps ORDER BY 1",
      [&](const Statement& row) {
        gaps.push_back(
            {static_cast<uint64_t>(row.integer(0)), static_cast<uint64_t>(row.integer(1)),
             static_cast<uint64_t>(row.integer(2)), row.integer(3), row.integer(4), row.text(5)});
      });
  return gaps;
}

std::vector<TraceDrop> Reader::drops() {
  std::vector<TraceDrop> drops;
  if (!impl_->has_table("drops")) return drops;
  impl_->query("SELECT sequence, events, steps, net_events, begin_ns, end_ns FROM drops ORDER BY 1",
               [&](const Statement& row) {
                 drops.push_back(
                     {static_cast<uint64_t>(row.integer(0)), static_cast<uint64_t>(row.integer(1)),
                      static_cast<uint64_t>(row.integer(2)), static_cast<uint64_t>(row.integer(3)),
                      row.integer(4), row.integer(5)});
               });
  return drops;
}

std::vector<TraceModule> Reader::modules() {
  std::vector<TraceModule> modules;
  impl_->query("SELECT id, name, class FROM modules ORDER BY id", [&](const Statement& row) {
    modules.push_back(
        {ModuleId(static_cast<uint32_t>(row.integer(0))), shorten_path(row.text(1)), row.text(2)});
  });
  return modules;
}

std::map<OpId, std::string> Reader::ops() {
  std::map<OpId, std::string> ops;
  impl_->query("SELECT id, name FROM ops", [&](const Statement& row) {
    ops[OpId(static_cast<uint32_t>(row.integer(0)))] = row.text(1);
  });
  return ops;
}

std::map<uint32_t, TraceTensor> Reader::tensors() {
  std::map<uint32_t, TraceTensor> tensors;
  impl_->query("SELECT id, dtype, shape FROM tensors", [&](const Statement& row) {
    tensors[static_cast<uint32_t>(row.integer(0))] = {row.text(1), row.text(2)};
  });
  return tensors;
}

std::map<StorageId, std::string> Reader::parameters() {
  std::map<StorageId, std::string> names;
  if (!impl_->has_table("parameters")) return names;
  const std::string sql = std::string("SELECT p.storage, ") + kParameterName +
                          " FROM parameters p LEFT JOIN modules w ON w.id = p.module"
                          " ORDER BY p.storage, p.module, p.name";
  impl_->query(sql.c_str(), [&](const Statement& row) {
    names.try_emplace(StorageId(static_cast<uint64_t>(row.integer(0))), shorten_path(row.text(1)));
  });
  return names;
}

std::map<uint32_t, std::string> Reader::stacks() {
  std::map<uint32_t, std::string> stacks;
  impl_->query("SELECT id, frames FROM stacks", [&](const Statement& row) {
    stacks[static_cast<uint32_t>(row.integer(0))] = row.text(1);
  });
  return stacks;
}

std::map<std::string, int64_t> Reader::optimizer_steps() {
  std::map<std::string, int64_t> steps;
  if (!impl_->has_table("optimizers")) return steps;
  impl_->query("SELECT class, step_count FROM optimizers",
               [&](const Statement& row) { steps[row.text(0)] = row.integer(1); });
  return steps;
}

std::map<UnitId, std::string> Reader::units() {
  std::map<UnitId, std::string> units;
  if (!impl_->has_table("units")) return units;
  impl_->query("SELECT id, name FROM units", [&](const Statement& row) {
    units[UnitId(static_cast<uint32_t>(row.integer(0)))] = row.text(1);
  });
  return units;
}

std::vector<TraceUnitEvent> Reader::unit_events() {
  std::vector<TraceUnitEvent> events;
  if (!impl_->has_table("unit_storages") || !impl_->has_table("unit_changes")) return events;
  impl_->read([&] { events = trace::UnitRows(impl_->database()).read(); });
  return events;
}

std::vector<PostMortem> Reader::failures() {
  std::vector<PostMortem> failures;
  if (!impl_->has_table("live_at_failure")) return failures;
  std::map<int64_t, size_t> positions;
  impl_->query(
      "SELECT id, sequence, time_ns, step, size_bytes, device, op, module, message FROM failures"
      " ORDER BY id",
      [&](const Statement& row) {
        positions[row.integer(0)] = failures.size();
        PostMortem& each = failures.emplace_back();
        each.sequence = static_cast<uint64_t>(row.integer(1));
        each.time_ns = row.integer(2);
        each.step = static_cast<uint32_t>(row.integer(3));
        if (!row.is_null(4)) each.failed.size_bytes = row.integer(4);
        each.failed.device = row.text(5);
        each.op = row.text(6);
        each.module = row.text(7);
        each.message = row.text(8);
      });
  impl_->query(
      "SELECT failure, device, category, module, op, dtype, shape, stack, storage_count, size_bytes"
      " FROM live_at_failure ORDER BY rowid",
      [&](const Statement& row) {
        const auto position = positions.find(row.integer(0));
        if (position == positions.end()) return;
        failures[position->second].live.push_back(
            {.device = row.text(1),
             .category = parse_category(row.text(2)).value_or(Category::Other),
             .module = row.text(3),
             .op = row.text(4),
             .dtype = row.text(5),
             .shape = row.text(6),
             .stack = row.text(7),
             .storage_count = row.integer(8),
             .size_bytes = row.integer(9)});
      });
  return failures;
}

void Reader::visit_events(uint64_t first, uint64_t last, const VisitEvent& visit) {
  impl_->visit(first, last,
               [&](const CodedEvent& traced, uint64_t sequence) { visit(traced.event, sequence); });
}

void Reader::visit_trace_events(uint64_t first, uint64_t last, const VisitCoded& visit) {
  impl_->visit(first, last, visit);
}

void Reader::visit_batches(uint64_t last, const VisitBatch& visit) {
  impl_->visit_batches(1, last, visit);
}

uint64_t Reader::pass_count() const { return impl_->pass_count(); }

void Reader::replay(Ledger& ledger, uint64_t last) {
  impl_->visit(1, last, [&](const CodedEvent& traced, uint64_t) { ledger.apply(traced.event); });
}

std::vector<TraceStorage> Reader::storages_alive_at(uint64_t sequence, size_t limit) {
  const auto to_sql = [](uint64_t value) {
    return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
  };
  const std::string parameter =
      impl_->has_table("parameters")
          ? std::string("(SELECT ") + kParameterName +
                " FROM parameters p"
                " LEFT JOIN modules w ON w.id = p.module WHERE p.storage = s.id"
                " ORDER BY p.module, p.name LIMIT 1)"
          : "NULL";
  std::vector<TraceStorage> storages;
  impl_->read([&] {
    const std::string sql =
        "SELECT s.born, s.freed, s.born_ns, s.freed_ns, s.id, s.size_bytes, s.device, s.category,"
        " s.step, s.module, o.name, t.dtype, t.shape, k.frames, " +
        parameter +
        " FROM storages s"
        " LEFT JOIN ops o ON o.id = s.op LEFT JOIN tensors t ON t.id = s.tensor"
        " LEFT JOIN stacks k ON k.id = s.stack"
        " WHERE s.born <= ? AND (s.freed IS NULL OR s.freed > ?)"
        " ORDER BY s.size_bytes DESC, s.born LIMIT ?";
    Statement row = impl_->database().prepare(sql.c_str());
    row.bind(0, to_sql(sequence)).bind(1, to_sql(sequence)).bind(2, to_sql(limit));
    while (row.step()) {
      const int64_t category = row.integer(7);
      storages.push_back({.born = static_cast<uint64_t>(row.integer(0)),
                          .freed = static_cast<uint64_t>(row.integer(1)),
                          .born_ns = row.integer(2),
                          .freed_ns = row.integer(3),
                          .id = StorageId(static_cast<uint64_t>(row.integer(4))),
                          .size_bytes = row.integer(5),
                          .device = row.text(6),
                          .category = category >= 0 && category < int64_t{kCategoryCount}
                                          ? static_cast<Category>(category)
                                          : Category::Other,
                          .step = static_cast<uint32_t>(row.integer(8)),
                          .module = ModuleId(static_cast<uint32_t>(row.integer(9))),
                          .op = row.text(10),
                          .dtype = row.text(11),
                          .shape = row.text(12),
                          .parameter = row.text(14),
                          .stack = row.text(13)});
    }
  });
  return storages;
}

}  // namespace tidegauge
