// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "core/events/event.h"
#include "core/ledger/ledger.h"
#include "trace/event_codec.h"

namespace tidegauge::trace {

/// What an event did to its storage.
struct StorageEffect {
  std::optional<StorageInfo> before;  ///< nothing: it is born
  std::optional<StorageInfo> after;   ///< nothing: it has ended
  bool is_label = false;              ///< it was told what it is
  bool is_since_birth = false;        ///< and that it has been that all along

  Device device() const { return before ? before->device : after->device; }
  int64_t old_bytes() const { return before ? before->size_bytes : 0; }
  int64_t new_bytes() const { return after ? after->size_bytes : 0; }

  friend bool operator==(const StorageEffect&, const StorageEffect&) = default;
};

/// Follows the storages of a trace by asking a Ledger, so that whatever that refuses has no effect
/// on anybody.
class StorageEffects {
 public:
  /// Nothing if the event changes no storage, or cannot be true. Must be told of every one, as they
  /// come.
  std::optional<StorageEffect> apply(const Event& event);

  Ledger& ledger() { return ledger_; }

 private:
  Ledger ledger_;
};

/// What an event that did not end a storage tells of it. `Known` has members category, module, op
/// and tensor.
template <typename Known>
void learn(Known& known, const CodedEvent& traced, const StorageEffect& effect) {
  const Event& event = traced.event;
  known.category = effect.after->category;
  if (event.kind == EventKind::StorageRelabelled) {
    if (event.module) known.module = event.module;
  } else if (event.kind == EventKind::StorageClaimed) {
    if (event.op) known.op = event.op;
    if (traced.tensor != 0) known.tensor = traced.tensor;
  }
}

/// A label since birth: what was known `earlier` is what is known now.
template <typename Known>
void correct(Known& earlier, const Known& known) {
  earlier.category = known.category;
  earlier.module = known.module;
  earlier.op = known.op;
  earlier.tensor = known.tensor;
}

}  // namespace tidegauge::trace
