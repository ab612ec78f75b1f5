// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/unit_owners.h"
#include "core/events/category.h"
#include "core/events/device.h"
#include "core/events/ids.h"

namespace tidegauge {

/// What is known of a storage at one moment of the second pass.
struct LiveStorage {
  int64_t size_bytes = 0;  ///< 0 also after the free
  Device device;
  Category category{};
  ModuleId module;  ///< the module that was running at the birth, or the owner
  OpId op;
  uint32_t tensor = 0;  ///< index into EventSource::tensors; 0: unknown
  uint32_t stack = 0;   ///< index into EventSource::stacks; 0: not recorded
};

/// The storages of the second pass by their place, which a later storage may take over. `Data` is
/// LiveStorage, or derived from it.
template <typename Data>
class LiveStorages {
 public:
  /// Without `owners`, a storage of a sharded unit has no module if none was running at its birth.
  explicit LiveStorages(UnitOwners owners = {}) : owners_(std::move(owners)) {}

  /// Applies an event that has an effect, and returns its storage. At a birth, the members of a
  /// derived `Data` have their initial values.
  Data& apply(const AppliedEvent& applied, const trace::Position& position) {
    const trace::StorageEffect& effect = *applied.effect;
    if (!effect.before) {
      if (applied.place >= storages_.size()) storages_.resize(applied.place + size_t{1});
      storages_[applied.place] = {};
      describe_birth(storages_[applied.place], applied, position);
    }
    Data& storage = storages_[applied.place];
    storage.size_bytes = effect.new_bytes();
    if (effect.after) trace::learn(storage, applied.traced, effect);
    return storage;
  }

  Data& operator[](uint32_t place) { return storages_[place]; }
  auto begin() { return storages_.begin(); }
  auto end() { return storages_.end(); }

 private:
  void describe_birth(LiveStorage& storage, const AppliedEvent& applied,
                      const trace::Position& position) const {
    const Event& event = applied.event();
    storage.device = applied.effect->device();
    storage.module = owners_.find(position.module_of(event.thread), event.storage);
    storage.op = event.op;
    storage.tensor = applied.traced.tensor;
    storage.stack = applied.traced.stack;
  }

  std::vector<Data> storages_;
  UnitOwners owners_;
};

}  // namespace tidegauge
