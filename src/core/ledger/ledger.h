// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/ledger/anomalies.h"
#include "core/events/event.h"
#include "core/ledger/late_labels.h"
#include "core/ledger/module_stats.h"
#include "core/ledger/peak_stack.h"
#include "core/ledger/snapshot.h"
#include "core/ledger/storage_history.h"
#include "core/ledger/storage_table.h"

namespace tidegauge {

struct LedgerOptions {
  size_t kept_steps = 1024;  ///< peaks of older steps are dropped
  /// Late labels are settled when more are waiting than this plus what they can correct.
  size_t settle_after = 2048;
};

struct StorageInfo {
  Device device;
  int64_t size_bytes = 0;
  Category category{};

  friend bool operator==(const StorageInfo&, const StorageInfo&) = default;
};

/// Owns the bytes and the peaks: a function of the events applied so far and of nothing else, so
/// that a replayed trace gives equal answers.
///
///   Event -> StorageTable     who is alive, how large, what it is called now
///         -> PeakStack        one a device: bytes by category, peaks of run, step, module calls
///         -> ModuleLog        snapshots at enter, exit, mark
///         -> StorageHistory, LateLabels     what labels since birth correct, later
///
/// Cost: O(1) per storage event, amortised. A label since birth takes O(past changes of the storage
/// that it renames). Late labels are settled in O((M + L) log (M + L)), for M stored splits and L
/// entries, once more than M entries were logged. A module event takes O(devices), its exit also
/// O(frames younger than the call). The number of known modules does not matter.
///
/// Memory: live storages, stored splits, and as many entries of late labels and history as there
/// are stored splits, plus `settle_after`; beyond that only history that a stored split needs.
/// So a run of any length stays flat if IterationBegin or StatisticsReset come at times.
///
/// Threads: the owner (the tracker) locks around each call. Reads settle, hence are not const.
class Ledger {
 public:
  explicit Ledger(LedgerOptions options = {});

  /// An event that cannot be true changes nothing but the anomalies.
  void apply(const Event& event);
  /// Likewise for a StorageRelabelled of the storage that was found.
  void apply_relabelled(const Event& event, StorageRecord& record);
  /// Likewise for a StorageFreed.
  void apply_freed(const Event& event, StorageRecord& record) {
    begin_of_storage(event);
    storage_freed(record);
  }
  /// Null if there is no such live storage. Valid until the next birth or free.
  StorageRecord* find_record(StorageId storage) { return storages_.find(storage); }
  /// Instead of `apply`, for beginning and end of a call that are between two restarts of the
  /// lists, both: only statistics would tell of it, and nobody can read them any more.
  void pass(const Event& event) { begin(event); }

  Snapshot current() const;
  /// The most bytes of each device since the last PeakReset, each at its own instant.
  Snapshot peak();

  /// Modules with statistics since the lists restarted, in the order of their first event.
  std::vector<ModuleId> modules() { return module_log_.modules(); }
  /// Whether a call of the module is open in this phase.
  bool is_open(ModuleId module, Phase phase) const;
  /// The innermost module that runs in the thread; 0 for none.
  ModuleId innermost_module(ThreadId thread) const;
  bool has_statistics(ModuleId module) const { return module_log_.has_entries(module); }
  /// Whether ModuleGone would end statistics or sizes of the module.
  bool knows(ModuleId module) const { return module_log_.knows(module); }
  /// Also for modules that are not listed: then sizes and peaks of open calls, if any.
  ModuleStats module_stats(ModuleId module);

  /// The last steps, the running one included.
  std::vector<StepPeak> step_peaks();

  std::optional<StorageInfo> find_storage(StorageId storage) const;
  /// Of a live storage.
  std::optional<Category> find_category(StorageId storage) const {
    const StorageRecord* record = storages_.find(storage);
    return record != nullptr ? std::optional(record->category) : std::nullopt;
  }
  /// The event from which on a live storage has its size; 0 for others.
  uint64_t since_sequence(StorageId storage) const;
  size_t storage_count() const { return storages_.size(); }
  /// Calls `visit(StorageId, StorageInfo)` for each live storage, in no order.
  template <typename Visit>
  void visit_storages(Visit&& visit) const {
    storages_.visit([&](const StorageRecord& record) {
      visit(record.id,
            StorageInfo{devices_[record.device_slot], record.size_bytes, record.category});
    });
  }
  const Anomalies& anomalies() const { return anomalies_; }
  /// The last event applied.
  const Instant& now() const { return now_; }
  /// Memory of the tables, to see that they stay flat.
  size_t footprint_bytes() const;

 private:
  enum class FrameKind : uint8_t { Run, Step, Call };
  /// One bracket that every PeakStack holds at the same position.
  struct Frame {
    uint64_t call = 0;
    ModuleId module{};
    ThreadId thread{};
    FrameKind kind{};
    Phase phase{};
  };
  struct ClosedStep {
    uint32_t step = 0;
    Instant taken;
    std::vector<DeviceMoment> moments;
  };

  void begin(const Event& event) {
    ++now_.sequence;
    now_.time_ns = event.time_ns;
  }
  void begin_of_storage(const Event& event) {
    begin(event);
    changed_sequence_ = now_.sequence;
  }
  // One for each kind of event.
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
  void step_marker();
  void peak_reset();

  void reject(Anomaly anomaly, const Event& event);
  uint16_t slot_of(Device device);
  [[gnu::noinline]] uint16_t find_slot(Device device);
  StorageRecord* find_live(const Event& event, Anomaly if_unknown);
  void remember(StorageRecord& record);
  void relabel_since_birth(StorageRecord& record, Category category);

  void open_frame(const Frame& frame);
  template <typename Consume>
  void close_frame(size_t position, Consume consume);
  std::optional<size_t> find_frame(FrameKind kind) const;
  std::optional<size_t> find_call(const Event& exit) const;
  void take_snapshot(ModuleId module, ModuleState state, uint64_t call);
  Snapshot peak_of_frame(size_t position);

  uint64_t newest_stored_sequence(uint16_t device_slot) const;
  std::vector<StoredSplit> stored_splits(uint64_t first_sequence);
  void settle();
  void settle_and_trim_if_due() {
    if (late_labels_.size() + remembered_since_trim_ > options_.settle_after) settle_and_trim();
  }
  /// If there is more than what stored splits may want, too.
  void settle_and_trim();

  LedgerOptions options_;
  Instant now_;
  StorageTable storages_;
  std::vector<Device> devices_;
  std::vector<PeakStack> stacks_;  // by device slot
  std::map<Device, uint16_t> slots_;
  uint16_t last_slot_ = 0;  // most births are on the device of the one before
  std::vector<Frame> frames_;
  ModuleLog module_log_;
  std::deque<ClosedStep> closed_steps_;
  StorageHistory history_;
  LateLabels late_labels_;
  size_t remembered_since_trim_ = 0;  // pieces of history
  size_t kept_by_trim_ = 0;
  uint64_t newest_snapshot_sequence_ = 0;
  uint64_t changed_sequence_ = 0;  // the last event of a storage
  uint64_t optimizer_depth_ = 0;
  uint64_t collective_depth_ = 0;
  Anomalies anomalies_;
};

}  // namespace tidegauge
