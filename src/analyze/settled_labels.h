// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "analyze/storage_effects.h"
#include "core/events/event.h"
#include "trace/progress.h"
#include "trace/reader.h"

namespace tidegauge {

/// The effect of an event on one storage, with its final labels.
struct StorageChange {
  uint32_t life = 0;  ///< counted from 0, in the order of births
  Device device;
  int64_t old_bytes = 0;  ///< 0 before the birth
  int64_t new_bytes = 0;  ///< 0 after the end
  Category old_category{};
  Category new_category{};
  bool is_birth = false;
  bool is_end = false;
};

/// Numbers the lives of storages, and counts the labels of each.
class StorageFollower {
 public:
  struct Followed {
    StorageChange change;      ///< with the categories known at the time
    uint32_t label_count = 0;  ///< labels since the birth
    bool is_label = false;     ///< the event is a label
    bool is_since_birth = false;
  };
  /// Nothing if the event changes no storage. Call it for every event, in order.
  std::optional<Followed> apply(const Event& event);

  Ledger& ledger() { return effects_.ledger(); }

 private:
  struct NumberedStorage {
    uint32_t number = 0;
    uint32_t label_count = 0;
  };

  trace::StorageEffects effects_;
  std::unordered_map<StorageId, NumberedStorage> storages_;
  uint32_t birth_count_ = 0;
};

/// First pass over a trace: collects labels since birth (Note [Labels since birth]) for a second
/// pass, which needs them at the birth. Memory: 8 bytes per birth.
class SettledLabels {
 public:
  void learn(const Event& event);

  /// `category` replaces all labels up to number `overruled_labels`, since the birth.
  struct Birth {
    uint32_t overruled_labels = 0;
    Category category{};
  };
  const Birth& of(uint32_t life) const { return births_[life]; }
  Ledger& ledger() { return follower_.ledger(); }

 private:
  StorageFollower follower_;
  std::vector<Birth> births_;
};

/// Makes the first pass over all events. Propagates exceptions from the Reader.
SettledLabels learn_labels(Reader& reader, const trace::Passes& passes);

/// Second pass: returns each change with its final categories. At every event, the sums by category
/// equal those that the Ledger would have if its peak were at this event.
class SettledStorages {
 public:
  /// `labels` must have learned the whole trace.
  explicit SettledStorages(const SettledLabels& labels) : labels_(labels) {}

  /// Nothing if the event changes no storage. Call it for every event, in order.
  std::optional<StorageChange> apply(const Event& event);

 private:
  const SettledLabels& labels_;
  StorageFollower follower_;
  std::unordered_map<uint32_t, Category> categories_;  // of live storages, by life
};

}  // namespace tidegauge
