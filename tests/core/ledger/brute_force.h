// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/ledger/ledger.h"

namespace tidegauge {

/// A slow and obvious Ledger. It stores the size and category of every storage after every event,
/// rewrites them when a label comes late, and answers queries by scanning them.
class BruteForce {
 public:
  void apply(const Event& event);

  Snapshot current() const;
  Snapshot peak() const;
  std::vector<ModuleId> modules() const;
  ModuleStats module_stats(ModuleId module) const;
  std::vector<StepPeak> step_peaks() const;
  std::optional<StorageInfo> find_storage(StorageId storage) const;
  size_t storage_count() const;
  uint64_t anomaly_count(Anomaly anomaly) const { return anomalies_[static_cast<size_t>(anomaly)]; }

 private:
  struct State {
    int64_t size_bytes;
    Category category;
  };
  /// One storage from birth to free. `states[i]` is its state after event `born + i`.
  struct Life {
    StorageId id;
    Device device;
    uint64_t born;
    std::vector<State> states;
    bool is_alive = true;
  };
  struct Call {
    ModuleId module;
    Phase phase;
    ThreadId thread;
    uint64_t enter;
    uint64_t exit = 0;
  };
  struct Entry {
    ModuleId module;
    ModuleState state;
    uint64_t call;
    uint64_t first;  // a peak is the maximum of events first to last; otherwise they are equal
    uint64_t last;
  };

  std::optional<Anomaly> find_fault(const Event& event) const;
  const Life* find_alive(StorageId id) const;
  Life* find_alive(StorageId id);
  const Call* find_open_call(const Event& event) const;
  void change(const Event& event);

  uint64_t now() const { return instants_.size() - 1; }
  CategorySplit split_at(uint64_t sequence, Device device) const;
  const std::vector<CategorySplit>& splits_of(Device device) const;
  Snapshot highest(uint64_t first, uint64_t last) const;

  std::vector<Instant> instants_{Instant{}};  // by sequence number
  std::vector<Life> lives_;
  std::vector<Device> devices_;
  std::vector<Call> calls_;
  std::vector<Entry> entries_;
  std::vector<uint64_t> step_markers_;
  std::vector<uint32_t> step_numbers_;  // of the steps that they begin
  std::map<ModuleId, std::array<std::optional<int64_t>, kSizeOfCount>> sizes_;
  uint64_t peak_from_ = 0;
  int optimizer_steps_ = 0;
  int collectives_ = 0;
  std::array<uint64_t, kAnomalyCount> anomalies_{};
  mutable std::map<Device, std::vector<CategorySplit>> cache_;  // cleared by every event
};

}  // namespace tidegauge
