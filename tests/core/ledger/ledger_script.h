// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/events/event_factory.h"
#include "core/ledger/ledger.h"

namespace tidegauge {

/// A Ledger with short functions for events, so that tests are easy to read. Every event takes one
/// nanosecond.
class Script {
 public:
  explicit Script(LedgerOptions options = {}) : ledger(options) {}

  Script& on(Device device) {
    origin_.device = device;
    return *this;
  }
  Script& in_thread(uint16_t thread) {
    origin_.thread = ThreadId(thread);
    return *this;
  }
  Script& born(uint64_t storage, int64_t size_bytes, uint8_t facts = 0) {
    return apply(events::storage_born(next(), StorageId(storage), size_bytes, facts));
  }
  Script& resized(uint64_t storage, int64_t size_bytes) {
    return apply(events::storage_resized(next(), StorageId(storage), size_bytes));
  }
  Script& is_now(uint64_t storage, Role role) {
    return apply(events::storage_relabelled(next(), StorageId(storage), role, Since::Now));
  }
  Script& was_always(uint64_t storage, Role role) {
    return apply(events::storage_relabelled(next(), StorageId(storage), role, Since::Birth));
  }
  Script& claimed(uint64_t storage, uint8_t facts = 0) {
    return apply(events::storage_claimed(next(), StorageId(storage), facts));
  }
  Script& freed(uint64_t storage) {
    return apply(events::storage_freed(next(), StorageId(storage)));
  }
  Script& enter(uint32_t module, Phase phase = Phase::Forward) {
    return apply(events::module_enter(next(), ModuleId(module), phase));
  }
  Script& exit(uint32_t module, Phase phase = Phase::Forward) {
    return apply(events::module_exit(next(), ModuleId(module), phase));
  }
  Script& mark(uint32_t module, ModuleState state) {
    return apply(events::module_mark(next(), ModuleId(module), state));
  }
  Script& size(uint32_t module, SizeOf size_of, int64_t size_bytes) {
    return apply(events::module_size(next(), ModuleId(module), size_of, size_bytes));
  }
  Script& happens(EventKind kind) { return apply(events::make(next(), kind)); }

  Script& apply(const Event& event) {
    ledger.apply(event);
    return *this;
  }

  std::vector<ModuleSnapshot> list(uint32_t module, ModuleState state) {
    return ledger.module_stats(ModuleId(module))[state];
  }
  /// The totals of one module state on one device, one number per call.
  std::vector<int64_t> totals(uint32_t module, ModuleState state, Device device = kCpu) {
    std::vector<int64_t> totals;
    for (const ModuleSnapshot& entry : list(module, state)) {
      totals.push_back(entry.bytes.total_bytes(device));
    }
    return totals;
  }

  Ledger ledger;

 private:
  events::Origin next() {
    ++origin_.time_ns;
    return origin_;
  }
  events::Origin origin_{0, ThreadId(1), kCpu};
};

}  // namespace tidegauge
