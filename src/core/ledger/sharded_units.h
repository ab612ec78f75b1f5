// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/events/event.h"
#include "core/events/unit_event.h"
#include "core/ledger/ledger.h"
#include "core/ledger/unit_report.h"

namespace tidegauge {

/// The state (UnitState) and bytes of each unit of sharded parameters. They depend only on the
/// events and unit events, not on torch or Python, so any sharding code can use this class.
///
/// A fact about a storage becomes a label (`decide`), and then the storage's bytes belong to the
/// unit. Every change of bytes is logged with the number of its event, so that the bytes at any
/// instant (such as the peak) can be summed later. A late label adds changes in the past:
///
///   settled_  | changes_: -- +400 (seq 7) -- +100 (seq 9) -- -400 (seq 12) -- +50 (seq 8, late)
///             '-- the sum of all older changes; the sum at the peak is kept beside it
///
/// When there are many changes, the oldest ones are settled: added to `settled_` and dropped.
///
/// Not thread-safe: the tracker locks around each call.
class ShardedUnits {
 public:
  static constexpr size_t kKeptGatherings = 64;

  struct Label {
    Role role;
    Since since;
  };

  /// `kept_changes`: the length of timelines, in changes of all units.
  explicit ShardedUnits(size_t kept_changes = 16384) : kept_changes_(kept_changes) {}

  /// Adds a unit, or renames a known one. Returns true if anything changed.
  bool add(UnitId unit, std::string name);

  /// The label that a fact gives to a storage of this category; none if the label stays.
  static std::optional<Label> decide(UnitFact fact, Category category);

  /// Call after each event that `ledger` has applied.
  void apply(const Event& event, const Ledger& ledger);
  /// Applies a change of a unit. Returns false if it has no effect: a unit that is gathered cannot
  /// be gathered again, and it owns only storages that the ledger knows.
  bool apply(const UnitEvent& event, const Ledger& ledger);
  /// The unit that owns the storage; 0 for none.
  UnitId unit_of(StorageId storage) const {
    const auto entry = storages_.find(storage);
    return entry == storages_.end() ? UnitId{} : entry->second.unit;
  }

  UnitState state(UnitId unit) const;
  /// The units in the order of `add`. `peak`: the peak of the Ledger.
  std::vector<UnitReport> read(const Snapshot& peak) const;
  /// Does not count names and gatherings, which grow only with the number of units.
  size_t footprint_bytes() const {
    return changes_.capacity() * sizeof(Change) + storages_.size() * 96;
  }
  /// Call regularly. Settles, and calls `peak()`, only if there are many changes.
  template <typename ReadPeak>
  void settle_if_due(ReadPeak&& peak) {
    if (changes_.size() > 2 * kept_changes_) settle(peak());
  }

 private:
  struct Unit {
    std::string name;
    UnitState state{};
    std::deque<Gathering> gatherings;
    int64_t reduce_count = 0;
  };
  struct When {
    uint64_t sequence = 0;
    int64_t time_ns = 0;  // 0: unknown
  };
  struct OwnedStorage {
    UnitId unit;
    Device device;
    int64_t size_bytes = 0;
    Category category{};
    When since;
  };
  struct Change {
    When when;
    int64_t size_bytes = 0;
    UnitId unit;
    Device device;
    Category category{};
  };
  using Key = std::pair<UnitId, Device>;
  using Sums = std::map<Key, CategorySplit>;

  Unit& find(UnitId unit);
  bool assign(UnitId unit, StorageId storage, const Ledger& ledger);
  void storage_changed(OwnedStorage& owned, int64_t size_bytes, Category category,
                       const Instant& at);
  void storage_corrected(OwnedStorage& owned, Category category);
  static bool begin_gather(Unit& unit, GatherReason reason, const Instant& now);
  static bool finish_gather(Unit& unit, const Instant& now);
  static bool release(Unit& unit, UnitState state, const Instant& now);
  void log(const OwnedStorage& owned, int64_t size_bytes, Category category, const When& when);
  Sums sums_at(const std::map<Device, uint64_t>& sequences) const;
  void settle(const Snapshot& peak);
  void append_timelines(std::vector<UnitReport>& reports) const;

  const size_t kept_changes_;
  std::map<UnitId, Unit> units_;
  std::vector<UnitId> order_;
  std::unordered_map<StorageId, OwnedStorage> storages_;
  std::vector<Change> changes_;  // since the last settling
  Sums settled_;                 // the sum of all changes before `changes_`
  Sums settled_at_peak_;
  std::map<Device, uint64_t> settled_peak_;  // the events of these peaks
};

}  // namespace tidegauge
