// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/events/unit_event.h"
#include "core/ledger/ledger.h"
#include "core/ledger/post_mortem.h"
#include "trace/database.h"
#include "trace/event_codec.h"
#include "trace/format_version.h"
#include "trace/run_facts.h"
#include "trace/storage_rows.h"

namespace tidegauge::trace {

class Gap;

/// Names that will be written with the next events.
struct Names {
  struct Module {
    std::string name;
    std::string class_name;
  };
  std::map<ModuleId, Module> modules;
  std::map<OpId, std::string> ops;
  struct Tensor {
    uint32_t id;
    std::string dtype;
    std::string shape;
  };
  std::vector<Tensor> tensors;
  std::map<StackId, std::string> stacks;
  std::map<uint32_t, PostMortem> failures;
  std::set<std::tuple<StorageId, ModuleId, std::string>> owned;  // parameters and buffers
  std::map<std::string, int64_t> optimizer_steps;                // by class
  std::map<UnitId, std::string> units;
  RunFacts facts;

  bool is_empty() const {
    return modules.empty() && ops.empty() && tensors.empty() && stacks.empty() &&
           failures.empty() && owned.empty() && optimizer_steps.empty() && units.empty() &&
           facts.empty();
  }
  /// Adds later names.
  void merge(Names&& later);
};

/// A unit event, and how many events of the same write came before it.
struct PlacedUnitEvent {
  UnitEvent event;
  size_t after = 0;
};

/// Writes a trace file, one transaction per call; used by the Recorder's thread.
///
/// Note [Killed at any moment]
/// The journal is SQLite's rollback journal, not a write-ahead log. A run is nearly always killed
/// between two batches. Then the single file contains everything. A write-ahead log would keep the
/// newest batches in a second file, which users would forget to copy. If a run is killed while it
/// writes a batch, the journal beside the file undoes that batch when the file is opened next.
/// Readers and the writer wait for each other, which does not matter with one writer and few
/// readers.
class TraceWriter {
 public:
  /// Throws IoError if the file exists and `overwrites` is false, or if it cannot be created.
  /// `max_file_bytes`: 0 for no limit.
  TraceWriter(const std::string& path, bool overwrites, int64_t max_file_bytes,
              const RunFacts& facts, int64_t version = kPlainVersion);

  /// Writes everything, or nothing and throws SqlError. `gap`: the events that were lost before
  /// these, if any; its net events come first in `events`.
  void write(std::span<const CodedEvent> events, std::span<const PlacedUnitEvent> units,
             const Names& names, const Gap* gap, const std::string& reason);
  /// Notes that `lost_events` follow, of which nothing is known.
  void write_final_gap(uint64_t lost_events, const std::string& reason);
  /// Writes the peaks and facts of the run and removes the journal file. Must be the last write.
  void write_summary(const RunFacts& facts);

  /// Renames the file and continues there, instead of another file at `path`. Throws IoError.
  void move_to(const std::string& path);

  /// True if the file no longer has its path: it was deleted, or another file is there.
  bool is_replaced() const;

  uint64_t event_count() const { return static_cast<uint64_t>(position_.sequence); }
  int64_t step() const { return position_.step; }
  /// The peak of each device.
  Snapshot peak() { return ledger_.peak(); }
  const std::string& path() const { return file_.path(); }
  /// Opens the file again after `move_to`.
  Database& database();

 private:
  template <typename Body>
  void transact(Body body);
  bool has_event(int64_t sequence);  // a commit may fail after its last write, at a sync
  void write_names(const Names& names);
  void write_units(std::span<const PlacedUnitEvent> units, int64_t sequence);
  void write_failure(uint32_t id, const PostMortem& post_mortem);
  void write_batch(std::span<const CodedEvent> events, Position& position);
  void write_storages();
  void write_peaks();
  void write_peak(int64_t step, const Snapshot& snapshot);
  void write_facts(const RunFacts& facts);

  /// The file, open as long as the database: closing it earlier would end SQLite's locks.
  class ReservedFile {
   public:
    /// Creates an empty file, so that errors about the path have the system's message.
    ReservedFile(std::string path, bool overwrites);
    ~ReservedFile();
    ReservedFile(const ReservedFile&) = delete;
    ReservedFile& operator=(const ReservedFile&) = delete;
    const std::string& path() const { return path_; }
    bool is_replaced() const;
    void rename_to(const std::string& path);

   private:
    std::string path_;
    int descriptor_ = -1;
  };

  struct Statements {
    explicit Statements(Database& database);
    Statement insert_batch, insert_storage, update_storage, insert_step, begin_optimizer_step,
        end_optimizer_step, insert_peak;
  };
  void open_database();
  Statements& statements();

  ReservedFile file_;
  const int64_t max_file_bytes_;
  std::optional<Database> database_;
  std::optional<Statements> statements_;  // prepared after the tables exist
  Position position_;
  StorageRows storages_;
  Ledger ledger_;  // has applied the events in the file, except module events
  uint32_t final_step_ = 0;
  bool is_stale_ = false;  // there was no memory to apply the events in the file
};

}  // namespace tidegauge::trace
