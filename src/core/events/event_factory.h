// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/events/event.h"

/// Functions that make events. Each takes the fields that its kind of event uses.
namespace tidegauge::events {

/// The fields that all events have.
struct Origin {
  int64_t time_ns = 0;
  ThreadId thread;
  Device device;
};

inline Event make(const Origin& origin, EventKind kind) {
  Event event;
  event.time_ns = origin.time_ns;
  event.thread = origin.thread;
  event.device = origin.device;
  event.kind = kind;
  return event;
}

inline Event storage_born(const Origin& origin, StorageId storage, int64_t size_bytes,
                          uint8_t birth_facts = 0, OpId op = {}, StreamId stream = {}) {
  Event event = make(origin, EventKind::StorageBorn);
  event.storage = storage;
  event.size_bytes = size_bytes;
  event.birth_facts = birth_facts;
  event.op = op;
  event.stream = stream;
  return event;
}

inline Event storage_resized(const Origin& origin, StorageId storage, int64_t size_bytes) {
  Event event = make(origin, EventKind::StorageResized);
  event.storage = storage;
  event.size_bytes = size_bytes;
  return event;
}

inline Event storage_relabelled(const Origin& origin, StorageId storage, Role role, Since since) {
  Event event = make(origin, EventKind::StorageRelabelled);
  event.storage = storage;
  event.role = role;
  event.since = since;
  return event;
}

inline Event storage_claimed(const Origin& origin, StorageId storage, uint8_t birth_facts,
                             OpId op = {}) {
  Event event = make(origin, EventKind::StorageClaimed);
  event.storage = storage;
  event.birth_facts = birth_facts;
  event.op = op;
  return event;
}

inline Event storage_freed(const Origin& origin, StorageId storage) {
  Event event = make(origin, EventKind::StorageFreed);
  event.storage = storage;
  return event;
}

inline Event module_enter(const Origin& origin, ModuleId module, Phase phase) {
  Event event = make(origin, EventKind::ModuleEnter);
  event.module = module;
  event.phase = phase;
  return event;
}

inline Event module_exit(const Origin& origin, ModuleId module, Phase phase) {
  Event event = make(origin, EventKind::ModuleExit);
  event.module = module;
  event.phase = phase;
  return event;
}

inline Event module_mark(const Origin& origin, ModuleId module, ModuleState state) {
  Event event = make(origin, EventKind::ModuleMark);
  event.module = module;
  event.state = state;
  return event;
}

inline Event module_size(const Origin& origin, ModuleId module, SizeOf size_of,
                         int64_t size_bytes) {
  Event event = make(origin, EventKind::ModuleSize);
  event.module = module;
  event.size_of = size_of;
  event.size_bytes = size_bytes;
  return event;
}

inline Event module_gone(const Origin& origin, ModuleId module) {
  Event event = make(origin, EventKind::ModuleGone);
  event.module = module;
  return event;
}

inline Event optimizer_step_begin(const Origin& origin) {
  return make(origin, EventKind::OptimizerStepBegin);
}

inline Event optimizer_step_end(const Origin& origin) {
  return make(origin, EventKind::OptimizerStepEnd);
}

inline Event collective_begin(const Origin& origin, OpId op) {
  Event event = make(origin, EventKind::CollectiveBegin);
  event.op = op;
  return event;
}

inline Event collective_end(const Origin& origin, OpId op) {
  Event event = make(origin, EventKind::CollectiveEnd);
  event.op = op;
  return event;
}

inline Event step_marker(const Origin& origin) { return make(origin, EventKind::StepMarker); }

inline Event statistics_reset(const Origin& origin) {
  return make(origin, EventKind::StatisticsReset);
}
inline Event iteration_begin(const Origin& origin) {
  return make(origin, EventKind::IterationBegin);
}

inline Event allocation_failed(const Origin& origin, int64_t size_bytes, ModuleId module, OpId op) {
  Event event = make(origin, EventKind::AllocationFailed);
  event.size_bytes = size_bytes;
  event.module = module;
  event.op = op;
  return event;
}

inline Event peak_reset(const Origin& origin) { return make(origin, EventKind::PeakReset); }

/// For a Ledger that only counts bytes. Replaces a module event, the most expensive kind, by an
/// event that does not affect bytes, so that sequence numbers stay the same.
inline Event without_modules(const Event& event) {
  const bool is_of_module =
      (event.kind >= EventKind::ModuleEnter && event.kind <= EventKind::ModuleSize) ||
      event.kind == EventKind::ModuleGone;
  return is_of_module ? iteration_begin({event.time_ns, {}, {}}) : event;
}

}  // namespace tidegauge::events
