// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "trace/gap.h"
#include "trace/keep.h"
#include "trace/unit_rows.h"
#include "trace/writer.h"

namespace tidegauge::trace {

/// Copies a trace that is being recorded to a second file, without the events that need not be
/// kept, and replaces the trace by the copy.
///
///   trace   |  net | 1 2 3 4 5 6 7 8 9 ...        The steps around the peak of each device and the
///   copy    | net | 4 5 6 | net | 9 ...           last steps stay. The others become their net
///                   peak          last            effect (gap.h), so a replay has the same bytes
///                   and
///                                                 the same peaks. Step numbers stay, too.
///
/// The copy is made in slices between two writes of the trace, and sees what was written in the
/// meantime, so training never waits for it. Until the copy is complete and has the name of the
/// trace, the trace is not changed: a kill at any moment leaves a valid file.
///
/// The tables of names keep the rows that later events may refer to; a module that was destroyed
/// has a row only if a kept event refers to it. Used by the Recorder's thread. All functions throw
/// SqlError or IoError; after an error, drop the object and use the trace as before.
class Compaction {
 public:
  /// `trace` must not be written during a call of this object. The copy has a random name beside
  /// it, and no file is ever overwritten.
  Compaction(TraceWriter& trace, const Keep& keep, int64_t now_ns);
  /// Removes the copy, unless `finish` has returned it.
  ~Compaction();
  Compaction(const Compaction&) = delete;
  Compaction& operator=(const Compaction&) = delete;

  /// Copies events until `deadline_ns` (steady clock). Returns true if none is left.
  bool advance(int64_t deadline_ns);
  /// Copies the names and returns the copy. Call when nothing is left, destroy the writer of the
  /// trace, and then call `move_to` of the copy.
  std::unique_ptr<TraceWriter> finish();

 private:
  /// Sequence numbers, both inclusive.
  struct Range {
    int64_t first = 0;
    int64_t last = 0;
  };
  /// A row of `gaps` or `drops`.
  struct Missing {
    int64_t events = 0;
    int64_t steps = 0;
    int64_t net_events = 0;  // of `drops` alone
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    std::string reason{};  // of `gaps` alone
  };

  void read_missing();
  int64_t find_cut(const Keep& keep, int64_t now_ns);
  std::optional<Range> find_peak_range(int64_t peak);
  bool is_kept(int64_t sequence);
  bool copy_batch();
  void copy_failures();
  void copy(const CodedEvent& traced, int64_t sequence);
  void keep(const CodedEvent& traced);
  void drop(const CodedEvent& traced);
  void begin_kept_range();
  void write_kept();
  void insert_missing(const char* table, int64_t sequence, const Missing& missing);

  const std::string path_;  // of the trace
  const std::string copy_path_, journal_path_;
  std::unique_ptr<TraceWriter> copy_;
  std::optional<Statement> read_batch_;
  std::optional<UnitRows> units_;
  std::vector<Range> ranges_;  // that are kept, in order; the last one has no end
  size_t range_ = 0;           // the first one that has not ended
  std::map<int64_t, Missing> old_gaps_, old_drops_;
  int64_t first_kept_failure_ = 0;
  int64_t last_failure_ = 0;

  int64_t next_ = 1;  // sequence number of the next event
  std::vector<CodedEvent> batch_;
  // Kept events that are not written yet.
  std::vector<CodedEvent> kept_;
  std::vector<PlacedUnitEvent> kept_units_;
  // The events dropped since the last kept one.
  Gap dropped_{/*joins_steps=*/true};
  int64_t dropped_events_ = 0;              // including those that were dropped before
  Missing lost_;                            // from gaps among them
  std::unordered_set<ModuleId> mentioned_;  // by the events of the copy
  std::unordered_set<ModuleId> gone_;       // and no event is about them any more
};

}  // namespace tidegauge::trace
