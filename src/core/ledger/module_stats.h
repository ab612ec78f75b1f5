// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/events/event.h"
#include "core/events/ids.h"
#include "core/ledger/snapshot.h"
#include "core/util/flat_table.h"

namespace tidegauge {

/// One entry in a module's list of snapshots for one state.
struct ModuleSnapshot {
  /// Identifies the call by the sequence number of its ModuleEnter. The Pre-, Post- and Peak-
  /// entries of one call have the same number. 0 for a ModuleMark, which belongs to no call.
  uint64_t call = 0;
  bool is_open = false;  ///< the peak so far of a call that has not ended
  Snapshot bytes;

  friend bool operator==(const ModuleSnapshot&, const ModuleSnapshot&) = default;
};

/// The statistics of one module, as a value. Lists are in the order of calls.
struct ModuleStats {
  std::array<std::vector<ModuleSnapshot>, kModuleStateCount> snapshots;
  std::array<std::optional<int64_t>, kSizeOfCount> sizes;  ///< from ModuleSize events

  const std::vector<ModuleSnapshot>& operator[](ModuleState state) const {
    return snapshots[static_cast<size_t>(state)];
  }
  std::optional<int64_t> size_bytes(SizeOf size_of) const {
    return sizes[static_cast<size_t>(size_of)];
  }

  friend bool operator==(const ModuleStats&, const ModuleStats&) = default;
};

/// The states of MemTracker that have entries, in the order of their first entries. An entry counts
/// at the begin of its call or, for the states after a call, at the end. Ties are in torch's order.
std::vector<ModuleState> states_in_order(const ModuleStats& stats);

/// The peak of the last backward, or of the last forward if there was no backward; null if there
/// was neither.
const Snapshot* local_peak(const ModuleStats& stats);

/// A Moment of one device. The Ledger numbers devices in the order in which they are first used.
struct DeviceMoment {
  uint16_t device_slot = 0;
  Moment moment;
};

/// The statistics of all modules as one log in the order of events. An index by module is built
/// only for reads. So an event costs the same with ten modules or ten thousand, and a restart of
/// all lists is one clear().
///
///   records   Pre-Fw A | Pre-Fw B | Post-Fw B | Peak-Fw B | Post-Fw A | Peak-Fw A
///   moments   cpu      | cpu cuda | cpu cuda  | cpu cuda  |           | cpu cuda
///
/// A module often ends where the next one begins. If the bytes do not change between two entries
/// (here Post-Fw B and Post-Fw A), they share their moments.
class ModuleLog {
 public:
  /// Starts an entry. `add` appends its moments.
  void begin(ModuleId module, ModuleState state, uint64_t call, const Instant& taken);
  /// Starts an entry for the current bytes, which last changed at `changed_sequence`. Returns true
  /// if the caller must `add` its moments, false if the entry shares those of an earlier one.
  bool begin_present(ModuleId module, ModuleState state, uint64_t call, const Instant& taken,
                     uint64_t changed_sequence);
  /// Returns a moment for the caller to fill. Devices without bytes are left out.
  Moment& add(uint16_t device_slot);

  void set_size(ModuleId module, SizeOf size_of, int64_t size_bytes) {
    sizes_.insert(module).first->bytes[static_cast<size_t>(size_of)] = size_bytes;
  }

  void restart_lists();
  void forget_sizes();
  /// Drops the entries and sizes of a module that was destroyed.
  void forget(ModuleId module);

  /// Modules that have entries, in the order of their first entries.
  const std::vector<ModuleId>& modules();
  bool has_entries(ModuleId module) const;
  /// True if the module has entries or sizes.
  bool knows(ModuleId module) const;
  /// All statistics except peaks of open calls. Requires late labels to be settled.
  ModuleStats read(ModuleId module, const std::vector<Device>& devices);

  /// Calls `visit(DeviceMoment&)` for every stored split.
  template <typename Visit>
  void for_each_stored(Visit visit) {
    for (DeviceMoment& moment : moments_) visit(moment);
  }
  size_t moment_count() const { return moments_.size(); }
  size_t footprint_bytes() const;

 private:
  struct Record {
    Instant taken;
    uint64_t call = 0;
    size_t first_moment = 0;
    uint32_t moment_count = 0;
    ModuleId module;
    ModuleState state{};
  };
  static constexpr int64_t kUnknown = -1;
  struct Sizes {
    ModuleId module;
    std::array<int64_t, kSizeOfCount> bytes{kUnknown, kUnknown, kUnknown, kUnknown};
  };
  void update_index();
  void drop_forgotten();

  std::vector<Record> records_;  // a record without a module is forgotten
  size_t forgotten_ = 0;
  std::vector<DeviceMoment> moments_;
  std::optional<size_t> last_present_;  // the record
  FlatTable<Sizes, &Sizes::module> sizes_;

  // Covers the first `indexed_` records.
  std::unordered_map<ModuleId, std::vector<size_t>> index_;
  std::vector<ModuleId> modules_;
  size_t indexed_ = 0;
};

}  // namespace tidegauge
