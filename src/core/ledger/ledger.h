// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/events/event.h"
#include "core/ledger/anomalies.h"
#include "core/ledger/late_labels.h"
#include "core/ledger/module_stats.h"
#include "core/ledger/peak_frames.h"
#include "core/ledger/storage_history.h"
#include "core/ledger/storage_table.h"
#include "core/modules/open_calls.h"

namespace tidegauge {

struct LedgerOptions {
  size_t kept_steps = 1024;  ///< number of steps whose peaks are kept
  /// Late labels are settled when there are more than this number plus the splits they can correct.
  size_t settle_after = 2048;
};

/// Owns the bytes and the peaks. Its answers depend only on the events applied so far, so a
/// replayed trace gives the same answers as the live run.
///
///   Event -> StorageTable     live storages: size and present category
///         -> PeakFrames       per device: bytes by category, peaks of run, step, module calls
///         -> ModuleLog        snapshots at enter, exit, mark
///         -> StorageHistory, LateLabels     what labels since birth correct, later
///
/// Cost: O(1) per storage event, amortised. A label since birth takes O(past changes of the storage
/// that it relabels). Late labels are settled in O((M + L) log (M + L)) for M stored splits and L
/// labels, when there are more than M labels. A module event takes O(devices), and its exit also
/// O(frames younger than the call). The number of modules does not matter.
///
/// Memory: live storages, stored splits, and for late labels and history as many entries as there
/// are stored splits, plus `settle_after`; beyond that only history that a stored split needs. So
/// memory does not grow with the length of a run that has IterationBegin or StatisticsReset events.
///
/// Threads: the tracker locks around each call. Reads settle late labels, so they are not const.
class Ledger {
 public:
  explicit Ledger(LedgerOptions options = {}) : options_(options) {}

  /// An impossible event only increases the number of anomalies.
  void apply(const Event& event);
  /// `apply` for a StorageRelabelled or StorageFreed; `record` is the result of find_record.
  void apply_relabelled(const Event& event, StorageRecord& record);
  void apply_freed(const Event& event, StorageRecord& record);
  /// Null if the storage is not alive. Valid until the next birth or free.
  StorageRecord* find_record(StorageId storage) { return storages_.find(storage); }
  /// Replaces `apply` for both ends of a call whose statistics can no longer be read, because the
  /// module lists have restarted: only counts the event.
  void skip(const Event& event);

  Snapshot current() const { return frames_.current(now_); }
  /// The peak of each device since the last PeakReset, each at its own instant.
  Snapshot peak() { return peak_of_frame(*frames_.find(PeakFrames::Kind::Run)); }

  /// Modules with statistics since the lists restarted, in the order of their first event.
  std::vector<ModuleId> modules() { return module_log_.modules(); }
  const OpenCalls& open_calls() const { return calls_; }
  bool has_statistics(ModuleId module) const { return module_log_.has_entries(module); }
  /// True if ModuleGone would drop statistics or sizes of the module.
  bool knows(ModuleId module) const { return module_log_.knows(module); }
  /// A module that is not in `modules` has only sizes and peaks of open calls.
  ModuleStats module_stats(ModuleId module);

  /// The last steps, including the current one.
  std::vector<StepPeak> step_peaks();

  std::optional<StorageInfo> find_storage(StorageId storage) const;
  /// None if the storage is not alive.
  std::optional<Category> find_category(StorageId storage) const {
    const StorageRecord* record = storages_.find(storage);
    return record != nullptr ? std::optional(record->category) : std::nullopt;
  }
  /// The event that gave a live storage its present size and category; 0 if it is not alive.
  uint64_t since_sequence(StorageId storage) const;
  size_t storage_count() const { return storages_.size(); }
  /// Calls `visit(StorageId, StorageInfo)` for each live storage, in no order.
  template <typename Visit>
  void visit_storages(Visit&& visit) const {
    storages_.visit([&](const StorageRecord& record) { visit(record.id, info_of(record)); });
  }
  const Anomalies& anomalies() const { return anomalies_; }
  /// The last event that was applied.
  const Instant& now() const { return now_; }
  /// The memory of the tables, for tests that it does not grow.
  size_t footprint_bytes() const;

 private:
  struct ClosedStep {
    uint32_t step = 0;
    Instant taken;
    std::vector<DeviceMoment> moments;
  };

  void begin(const Event& event);
  void begin_of_storage(const Event& event);
  void storage_born(const Event& event);
  void storage_resized(const Event& event);
  void storage_relabelled(const Event& event, StorageRecord& record);
  void storage_claimed(const Event& event);
  void storage_freed(StorageRecord& record);
  void module_enter(const Event& event);
  void module_exit(const Event& event);
  void module_mark(const Event& event);
  void module_size(const Event& event);
  void nest(uint64_t& depth, bool begins, Anomaly if_none, const Event& event);
  void restart_lists();
  void step_marker(uint32_t steps_begun);
  void peak_reset();

  void reject(Anomaly anomaly, const Event& event);
  StorageRecord* find_live(const Event& event, Anomaly if_unknown);
  StorageInfo info_of(const StorageRecord& record) const;
  void remember(StorageRecord& record);
  void relabel_since_birth(StorageRecord& record, Category category);
  void take_snapshot(ModuleId module, ModuleState state, uint64_t call);
  Snapshot peak_of_frame(size_t position);
  uint64_t newest_stored_sequence(uint16_t device_slot) const;
  std::vector<StoredSplit> stored_splits(uint64_t first_sequence);
  void settle();
  void settle_and_trim_if_due();
  void settle_and_trim();

  LedgerOptions options_;
  Instant now_;
  StorageTable storages_;
  PeakFrames frames_;
  OpenCalls calls_;  // mark: the sequence number of the ModuleEnter that opened the frame
  ModuleLog module_log_;
  std::deque<ClosedStep> closed_steps_;
  StorageHistory history_;
  LateLabels late_labels_;
  size_t remembered_since_trim_ = 0;  // pieces of history
  size_t kept_by_trim_ = 0;
  uint64_t newest_snapshot_sequence_ = 0;
  uint64_t changed_sequence_ = 0;  // sequence number of the last storage event
  uint64_t optimizer_depth_ = 0;
  uint64_t collective_depth_ = 0;
  Anomalies anomalies_;
};

}  // namespace tidegauge
