// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/event.h"
#include "core/ids.h"
#include "core/ledger.h"
#include "core/snapshot.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// A group of parameters that is gathered and released as one (FSDP2: a param group).
using UnitId = Id<struct UnitTag, uint32_t>;

/// What the sharding code says of a storage when it makes it, or hands it on.
enum class UnitFact : uint8_t {
  Shard,             ///< this rank's part of a parameter
  GatherBuffer,      ///< input or output of an all-gather, or a copy on the way
  Unsharded,         ///< a whole parameter
  PostForwardShard,  ///< a part of it kept after the forward, of a smaller mesh
  UnshardedGrad,     ///< the gradient of a whole parameter, in whatever type
  ReduceBuffer,      ///< input or output of a reduce-scatter, or a copy on the way
  AllReduceBuffer,   ///< what a reduce-scatter left and an all-reduce goes on with
  ReducedGrad,       ///< a shard's gradient that lies in the buffer it was reduced into
  ShardGrad,         ///< a shard's gradient in memory of its own: a cast, a sum, from before
};
inline constexpr uint8_t kUnitFactCount = 9;

enum class GatherReason : uint8_t { Forward, Backward, Prefetch, User, Recompute };
TIDEGAUGE_API std::string_view to_string(GatherReason reason);

enum class UnitState : uint8_t { Sharded, Gathering, Unsharded, PostForwardSharded };
TIDEGAUGE_API std::string_view to_string(UnitState state);

/// Once from the all-gather to the release.
struct Gathering {
  GatherReason reason{};
  Instant begun;                    ///< the all-gather
  std::optional<Instant> complete;  ///< the whole parameters are there
  std::optional<Instant> released;
};

struct UnitReport {
  UnitId id;
  std::string name;
  UnitState state{};
  std::map<Device, CategorySplit> now;
  std::map<Device, CategorySplit> at_peak;  ///< at the instant of each device's peak
  std::vector<Gathering> gatherings;        ///< the last ones, at most `kKeptGatherings`
  int64_t reduce_count = 0;
};

/// The life of sharded parameters: a function of the facts told, without torch or Python, so that
/// any code that shards can tell it.
///
///             begin_gather          finish_gather             release
///   Sharded ---------------> Gathering ---------> Unsharded ----------> Sharded
///                                                     \--------> PostForwardSharded
///
/// A fact about a storage becomes a label (`decide`), and its bytes then belong to the unit. Bytes
/// at the peak are found by the number of the event: all changes are logged, and settled into two
/// sums, at the peak and now, when there are many. A peak that comes later is later than the sum.
///
/// Not thread-safe: the MemoryTracker calls it under the lock of StorageCapture.
class TIDEGAUGE_API ShardedUnits {
 public:
  static constexpr size_t kKeptGatherings = 64;

  struct Label {
    Role role;
    Since since;
  };

  /// Known from now on; a second time it changes the name.
  void add(UnitId unit, std::string name);

  /// What a storage that is `category` now becomes by a fact; nothing if it stays what it is.
  static std::optional<Label> decide(UnitFact fact, Category category);

  /// The storage belongs to the unit. `since`: the event from which on it has its size.
  void assign(UnitId unit, StorageId storage, const StorageInfo& info, uint64_t since);
  /// Size or category of a storage changed at an event. Nothing for storages of no unit.
  void storage_changed(StorageId storage, int64_t size_bytes, Category category, uint64_t sequence);
  /// Its category changed since its birth.
  void storage_corrected(StorageId storage, Category category);
  void storage_freed(StorageId storage, uint64_t sequence);
  bool has(StorageId storage) const { return storages_.contains(storage); }

  void begin_gather(UnitId unit, GatherReason reason, const Instant& now);
  void finish_gather(UnitId unit, const Instant& now);
  void release(UnitId unit, bool keeps_post_forward_shard, const Instant& now);
  void reduce(UnitId unit);

  UnitState state(UnitId unit) const;
  /// In the order of `add`; `peak` is what the Ledger says.
  std::vector<UnitReport> read(const Snapshot& peak);
  /// To be called at times; `peak` is asked for only if there is much to settle.
  template <typename ReadPeak>
  void settle_if_due(ReadPeak&& peak) {
    if (changes_.size() > kSettleAfter) settle(peak());
  }

 private:
  static constexpr size_t kSettleAfter = 16384;

  struct Unit {
    std::string name;
    UnitState state{};
    std::deque<Gathering> gatherings;
    int64_t reduce_count = 0;
  };
  struct Owned {
    UnitId unit;
    Device device;
    int64_t size_bytes = 0;
    Category category{};
    uint64_t since = 0;
  };
  struct Change {
    uint64_t sequence = 0;
    int64_t size_bytes = 0;
    UnitId unit;
    Device device;
    Category category{};
  };
  using Sums = std::map<std::pair<UnitId, Device>, CategorySplit>;

  Unit& find(UnitId unit);
  void log(const Owned& owned, int64_t size_bytes, Category category, uint64_t sequence);
  Sums sums_at(const std::map<Device, uint64_t>& sequences) const;
  void settle(const Snapshot& peak);

  std::map<UnitId, Unit> units_;
  std::vector<UnitId> order_;
  std::unordered_map<StorageId, Owned> storages_;
  std::vector<Change> changes_;  // since the last settling
  Sums settled_;                 // all before `changes_`
  Sums settled_at_peak_;
  std::map<Device, uint64_t> settled_peak_;  // the events of the peaks meant above
};

}  // namespace tidegauge
