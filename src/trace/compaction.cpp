// SPDX-License-Identifier: BSD-3-Clause
#include "trace/compaction.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <random>

#include "trace/format_version.h"
#include "trace/steady_clock.h"

namespace tidegauge::trace {
namespace {

/// A step may have any number of events. So at most this many are kept on each side of a peak.
constexpr int64_t kPeakEvents = 512 * 1024;
/// Of a run that survives many failed allocations, the last ones stay.
constexpr int64_t kFailures = 64;

/// Of the copy, beside the trace: a file of the user never has this name.
std::string draw_copy_path(const std::string& path) {
  std::random_device draw;
  std::array<char, 32> suffix{};
  std::snprintf(suffix.data(), suffix.size(), "-kept-%08x%08x", draw(), draw());
  return path + suffix.data();
}

/// The first column of the first row; none if there is no row or if it is NULL.
std::optional<int64_t> find_integer(Database& database, const char* sql, int64_t parameter) {
  Statement statement = database.prepare(sql);
  statement.bind(0, parameter);
  if (!statement.step() || statement.is_null(0)) return std::nullopt;
  return statement.integer(0);
}

}  // namespace

Compaction::Compaction(TraceWriter& trace, const Keep& keep, int64_t now_ns)
    : path_(trace.path()),
      copy_path_(draw_copy_path(path_)),
      journal_path_(copy_path_ + "-journal"),
      copy_(std::make_unique<TraceWriter>(copy_path_, /*overwrites=*/false,
                                          /*max_file_bytes=*/0, RunFacts{}, kVersionWithDrops)) {
  Database& database = copy_->database();
  database.prepare("ATTACH ? AS trace").bind(0, path_).run();
  read_batch_.emplace(database.prepare(
      "SELECT first_sequence, event_count, events FROM trace.batches WHERE first_sequence = ?"));
  units_.emplace(database, "trace");
  read_missing();
  const int64_t cut = find_cut(keep, now_ns);
  for (const DeviceSplit& device : trace.peak().devices) {
    const auto range = find_peak_range(static_cast<int64_t>(device.at.sequence));
    if (range && range->first < cut) ranges_.push_back(*range);
  }
  ranges_.push_back({cut, std::numeric_limits<int64_t>::max()});
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  first_kept_failure_ =
      find_integer(database, "SELECT max(id) - ? FROM trace.failures", kFailures).value_or(0);
}

Compaction::~Compaction() {
  if (!copy_) return;
  read_batch_.reset();
  units_.reset();
  copy_.reset();
  ::unlink(copy_path_.c_str());
  ::unlink(journal_path_.c_str());
}

void Compaction::read_missing() {
  Database& database = copy_->database();
  Statement gaps = database.prepare(
      "SELECT sequence, lost_events, lost_steps, begin_ns, end_ns, reason FROM trace.gaps");
  while (gaps.step()) {
    old_gaps_[gaps.integer(0)] = {.events = gaps.integer(1),
                                  .steps = gaps.integer(2),
                                  .begin_ns = gaps.integer(3),
                                  .end_ns = gaps.integer(4),
                                  .reason = gaps.text(5)};
  }
  Statement drops = database.prepare("SELECT sequence, events, net_events FROM trace.drops");
  while (drops.step()) {
    old_drops_[drops.integer(0)] = {.events = drops.integer(1), .net_events = drops.integer(2)};
  }
}

/// The first event of those that are kept up to the end. A step begins there, if possible.
int64_t Compaction::find_cut(const Keep& keep, int64_t now_ns) {
  Database& database = copy_->database();
  const int64_t begin =
      keep.steps > 0
          ? find_integer(database,
                         "SELECT sequence FROM trace.steps WHERE step >="
                         " (SELECT max(step) FROM trace.steps) - ? ORDER BY step LIMIT 1",
                         keep.steps - 1)
                .value_or(1)
          : find_integer(database,
                         "SELECT min(first_sequence) FROM trace.batches WHERE last_ns >= ?",
                         now_ns - keep.time_ns)
                .value_or(1);
  if (keep.steps > 0) return begin;
  const auto step = find_integer(
      database, "SELECT sequence FROM trace.steps WHERE sequence >= ? ORDER BY sequence LIMIT 1",
      begin);
  // Without steps, or if they are very long, in the middle of one.
  return step && *step < begin + kPeakEvents ? *step : begin;
}

/// The steps around a peak: the one with the peak, the one before and the one after.
std::optional<Compaction::Range> Compaction::find_peak_range(int64_t peak) {
  Database& database = copy_->database();
  if (peak <= 0) return std::nullopt;
  Range range{peak - kPeakEvents, peak + kPeakEvents};
  if (const auto first = find_integer(database,
                                      "SELECT sequence FROM trace.steps WHERE sequence <= ?"
                                      " ORDER BY sequence DESC LIMIT 1 OFFSET 1",
                                      peak)) {
    range.first = std::max(range.first, *first);
  }
  if (const auto next = find_integer(database,
                                     "SELECT sequence FROM trace.steps WHERE sequence > ?"
                                     " ORDER BY sequence LIMIT 1 OFFSET 1",
                                     peak)) {
    range.last = std::min(range.last, *next - 1);
  }
  // Net effects stay whole, so that what was dropped is counted once.
  for (const auto& [sequence, drop] : old_drops_) {
    if (sequence > peak) {
      range.last = std::min(range.last, sequence - 1);
    } else {
      range.first = std::max(range.first, sequence + drop.net_events);
    }
  }
  return range;
}

bool Compaction::is_kept(int64_t sequence) {
  while (ranges_[range_].last < sequence) ++range_;
  return ranges_[range_].first <= sequence;
}

bool Compaction::advance(int64_t deadline_ns) {
  copy_failures();
  bool is_done = false;
  while (!is_done && steady_ns() < deadline_ns) is_done = !copy_batch();
  write_kept();
  return is_done;
}

/// Before the events that refer to them; those without events are removed at the end.
void Compaction::copy_failures() {
  Database& database = copy_->database();
  const int64_t last =
      find_integer(database, "SELECT max(id) FROM trace.failures WHERE id > ?", last_failure_)
          .value_or(last_failure_);
  if (last == last_failure_) return;
  for (const char* sql :
       {"INSERT INTO failures SELECT id, NULL, time_ns, step, size_bytes, device, op, module,"
        " message FROM trace.failures WHERE id > ?1 AND id <= ?2",
        "INSERT INTO live_at_failure SELECT * FROM trace.live_at_failure WHERE failure > ?1 AND"
        " failure <= ?2"}) {
    database.prepare(sql).bind(0, last_failure_).bind(1, last).run();
  }
  last_failure_ = last;
}

/// Returns false if there is no further batch.
bool Compaction::copy_batch() {
  batch_.clear();
  read_batch_->bind(0, next_);
  const bool is_there = read_batch_->step();
  if (is_there &&
      !decode_batch(read_batch_->blob(2), static_cast<uint64_t>(read_batch_->integer(1)), batch_)) {
    read_batch_->reset();
    throw SqlError(SQLITE_CORRUPT, "a batch of events cannot be decoded");
  }
  read_batch_->reset();
  if (!is_there) return false;
  const std::vector<TraceUnitEvent> units =
      units_->read(next_ + static_cast<int64_t>(batch_.size()) - 1);
  auto unit = units.begin();
  const auto copy_units_after = [&](int64_t sequence) {
    const bool are_kept = is_kept(std::max<int64_t>(sequence, 1));
    for (; unit != units.end() && static_cast<int64_t>(unit->sequence) <= sequence; ++unit) {
      if (are_kept) {
        kept_units_.push_back({unit->event, kept_.size()});
      } else {
        dropped_.add(unit->event);
      }
    }
  };
  copy_units_after(next_ - 1);
  for (const CodedEvent& traced : batch_) {
    copy(traced, next_);
    copy_units_after(next_);
    ++next_;
  }
  return true;
}

void Compaction::copy(const CodedEvent& traced, int64_t sequence) {
  const auto gap = old_gaps_.find(sequence);
  if (!is_kept(sequence)) {
    if (!kept_.empty()) write_kept();
    if (gap != old_gaps_.end()) {
      if (lost_.events == 0)
        lost_ = {.begin_ns = gap->second.begin_ns, .reason = gap->second.reason};
      lost_.events += gap->second.events;
      lost_.steps += gap->second.steps;
      lost_.end_ns = gap->second.end_ns;
    }
    if (const auto drop = old_drops_.find(sequence); drop != old_drops_.end()) {
      dropped_events_ += drop->second.events - drop->second.net_events;
    }
    return drop(traced);
  }
  if (!dropped_.is_empty()) begin_kept_range();
  if (gap != old_gaps_.end()) {
    write_kept();
    insert_missing("gaps", static_cast<int64_t>(copy_->event_count()) + 1, gap->second);
  }
  keep(traced);
}

void Compaction::keep(const CodedEvent& traced) {
  kept_.push_back(traced);
  if (traced.event.module) mentioned_.insert(traced.event.module);
}

void Compaction::drop(const CodedEvent& traced) {
  ++dropped_events_;
  const Event& event = traced.event;
  if (event.kind == EventKind::AllocationFailed && traced.tensor <= first_kept_failure_) return;
  // Nobody asks for the end of a module that the copy does not mention.
  if (event.kind == EventKind::ModuleGone && !mentioned_.contains(event.module)) {
    gone_.insert(event.module);
  }
  dropped_.add(traced);
}

/// Writes the net effect of the dropped events.
void Compaction::begin_kept_range() {
  const int64_t first = static_cast<int64_t>(copy_->event_count()) + 1;
  std::vector<CodedEvent> net = dropped_.net();
  std::erase_if(net, [&](const CodedEvent& traced) {
    return traced.event.kind == EventKind::ModuleGone && gone_.contains(traced.event.module);
  });
  for (const CodedEvent& traced : net) keep(traced);
  for (const UnitEvent& event : dropped_.net_of_units()) kept_units_.push_back({event, net.size()});
  write_kept();
  insert_missing("drops", first,
                 {.events = dropped_events_,
                  .steps = static_cast<int64_t>(dropped_.lost_steps()),
                  .net_events = static_cast<int64_t>(net.size()),
                  .begin_ns = dropped_.begin_ns(),
                  .end_ns = dropped_.end_ns()});
  if (lost_.events > 0) insert_missing("gaps", first, lost_);
  dropped_ = Gap(/*joins_steps=*/true);
  dropped_events_ = 0;
  lost_ = {};
}

void Compaction::write_kept() {
  if (!kept_.empty() || !kept_units_.empty()) copy_->write(kept_, kept_units_, {}, nullptr, {});
  kept_.clear();
  kept_units_.clear();
}

void Compaction::insert_missing(const char* table, int64_t sequence, const Missing& missing) {
  const bool is_gap = std::string_view(table) == "gaps";
  Statement insert =
      copy_->database().prepare(is_gap ? "INSERT OR REPLACE INTO gaps VALUES (?, ?, ?, ?, ?, ?)"
                                       : "INSERT OR REPLACE INTO drops VALUES (?, ?, ?, ?, ?, ?)");
  insert.bind(0, sequence).bind(1, missing.events).bind(2, missing.steps);
  if (is_gap) {
    insert.bind(3, missing.begin_ns).bind(4, missing.end_ns).bind(5, missing.reason);
  } else {
    insert.bind(3, missing.net_events).bind(4, missing.begin_ns).bind(5, missing.end_ns);
  }
  insert.run();
}

std::unique_ptr<TraceWriter> Compaction::finish() {
  if (!dropped_.is_empty()) begin_kept_range();
  Database& database = copy_->database();
  database.execute("CREATE TEMP TABLE gone (id INTEGER PRIMARY KEY)");
  for (const ModuleId module : gone_) {
    if (mentioned_.contains(module)) continue;
    database.prepare("INSERT INTO gone VALUES (?)").bind(0, int64_t{module.value}).run();
  }
  database.execute(R"sql(
BEGIN IMMEDIATE;
INSERT INTO modules SELECT * FROM trace.modules WHERE id NOT IN (SELECT id FROM gone);
INSERT INTO ops SELECT * FROM trace.ops;
INSERT INTO tensors SELECT * FROM trace.tensors;
INSERT INTO stacks SELECT * FROM trace.stacks;
INSERT INTO units SELECT * FROM trace.units;
INSERT INTO optimizers SELECT * FROM trace.optimizers;
INSERT INTO parameters SELECT * FROM trace.parameters
  WHERE storage IN (SELECT id FROM storages);
INSERT INTO run SELECT * FROM trace.run;
DELETE FROM failures WHERE sequence IS NULL;
DELETE FROM live_at_failure WHERE failure NOT IN (SELECT id FROM failures);
COMMIT;
DROP TABLE gone;
)sql");
  read_batch_.reset();
  units_.reset();
  database.execute("DETACH trace");
  return std::move(copy_);
}

}  // namespace tidegauge::trace
