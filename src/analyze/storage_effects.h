// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/events/event.h"
#include "core/ledger/ledger.h"
#include "core/util/flat_table.h"
#include "trace/event_codec.h"

namespace tidegauge::trace {

/// How an event changed its storage.
struct StorageEffect {
  std::optional<StorageInfo> before;  ///< none: the event is the birth
  std::optional<StorageInfo> after;   ///< none: the event is the free
  bool is_label = false;              ///< the event labels the storage
  bool is_since_birth = false;        ///< the label applies since the birth

  Device device() const { return before ? before->device : after->device; }
  int64_t old_bytes() const { return before ? before->size_bytes : 0; }
  int64_t new_bytes() const { return after ? after->size_bytes : 0; }

  friend bool operator==(const StorageEffect&, const StorageEffect&) = default;
};

/// Follows the storages of a trace with a Ledger: events that it rejects have no effect. The Ledger
/// has bytes and steps, but no modules.
class StorageEffects {
 public:
  explicit StorageEffects(const LedgerOptions& options = {}) : ledger_(options) {}

  /// None if the event changes no storage or is impossible. Call it for every event, in order.
  std::optional<StorageEffect> apply(const Event& event);

  Ledger& ledger() { return ledger_; }

 private:
  StorageInfo describe(const StorageRecord& record) const {
    return {devices_[record.device_slot], record.size_bytes, record.category};
  }
  void learn_device(const StorageRecord& record, Device device);

  Ledger ledger_;
  uint64_t refused_count_ = 0;
  std::vector<Device> devices_;  // by the ledger's number for it
};

/// The same effects again, for a second pass. It needs no Ledger, because the rejected events are
/// known and no peak has to be found.
class RepeatedEffects {
 public:
  /// `refused`: the sequence numbers of storage events that the Ledger rejected, in order.
  explicit RepeatedEffects(std::vector<uint64_t> refused) : refused_(std::move(refused)) {}

  /// The same effect as in StorageEffects; null for none. Valid until the next call.
  const StorageEffect* apply(const Event& event);
  /// A small number for the storage of the last effect. Numbers of freed storages are reused.
  uint32_t place() const { return place_; }
  /// The last event.
  const Instant& now() const { return now_; }

 private:
  struct LiveStorage {
    StorageId id;
    StorageInfo info;
    uint32_t place = 0;
  };

  void advance(const Event& event);
  /// Returns true if the Ledger rejected the present event, and moves on to the next such event.
  bool skip_refused();

  std::vector<uint64_t> refused_;
  size_t next_refused_ = 0;
  Instant now_;
  uint64_t optimizer_depth_ = 0;
  uint64_t collective_depth_ = 0;
  FlatTable<LiveStorage, &LiveStorage::id> live_;
  std::vector<uint32_t> free_places_;
  uint32_t place_ = 0;
  StorageEffect effect_;
};

/// Updates the data of a storage after an event that did not free it. `Data` has the members
/// category, module, op, tensor and stack.
template <typename Data>
void learn(Data& known, const CodedEvent& traced, const StorageEffect& effect) {
  const Event& event = traced.event;
  known.category = effect.after->category;
  if (event.kind == EventKind::StorageRelabelled) {
    if (event.module) known.module = event.module;
  } else if (event.kind == EventKind::StorageClaimed) {
    if (event.op) known.op = event.op;
    if (traced.tensor != 0) known.tensor = traced.tensor;
    if (traced.stack != 0) known.stack = traced.stack;
  }
}

/// Applies a label since birth to the `earlier` data of a storage.
template <typename Data>
void correct(Data& earlier, const Data& known) {
  earlier.category = known.category;
  earlier.module = known.module;
  earlier.op = known.op;
  earlier.tensor = known.tensor;
  earlier.stack = known.stack;
}

}  // namespace tidegauge::trace
