// SPDX-License-Identifier: BSD-3-Clause
#include "trace/storage_rows.h"

#include <algorithm>

#include "core/events/steps_begun.h"
#include "core/ledger/labeller.h"

namespace tidegauge::trace {
namespace {

constexpr size_t kMaxOpenCalls = 4096;  // a damaged stream may have enters without exits

}  // namespace

void Position::advance(const Event& event) {
  ++sequence;
  switch (event.kind) {
    case EventKind::ModuleEnter:
      if (open.size() < kMaxOpenCalls) open.enter(event);
      return;
    case EventKind::ModuleExit:
      open.leave(event);
      return;
    case EventKind::StepMarker:
      step += steps_begun(event);
      return;
    case EventKind::OptimizerStepBegin:
      if (optimizer_depth++ == 0) optimizer_begin = sequence;
      return;
    case EventKind::OptimizerStepEnd:
      if (optimizer_depth > 0) --optimizer_depth;
      return;
    default:
      return;
  }
}

StorageRow* StorageRows::find(StorageId id) {
  const auto touched = touched_.find(id);
  if (touched != touched_.end()) {
    if (!touched->second.is_alive) return nullptr;
    const size_t index = touched->second.index;
    return touched->second.is_new ? &born_[index] : &changed_[index];
  }
  const auto live = live_.find(id);
  if (live == live_.end()) return nullptr;
  StorageRow row;
  row.born = live->second.born;
  row.id = id;
  row.size_bytes = live->second.size_bytes;
  row.category = live->second.category;
  touched_[id] = {true, false, changed_.size()};
  changed_.push_back(row);
  return &changed_.back();
}

// Makes the same checks as the Ledger, in the same order, so that events that it rejects make no
// row.
void StorageRows::apply(const CodedEvent& traced, const Position& position) {
  const Event& event = traced.event;
  switch (event.kind) {
    case EventKind::StorageBorn: {
      if (!event.storage || event.size_bytes < 0 || (event.birth_facts & ~kAllBirthFacts)) return;
      if (find(event.storage) != nullptr) return;
      touched_[event.storage] = {true, true, born_.size()};
      born_.push_back({.born = position.sequence,
                       .id = event.storage,
                       .born_ns = event.time_ns,
                       .size_bytes = event.size_bytes,
                       .device = event.device,
                       .category = category_at_birth(event.birth_facts),
                       .step = position.step,
                       .module = position.module_of(event.thread),
                       .op = event.op,
                       .tensor = traced.tensor,
                       .stack = traced.stack});
      return;
    }
    case EventKind::StorageResized:
      if (StorageRow* row = find(event.storage)) {
        row->size_bytes = std::max(row->size_bytes, event.size_bytes);
      }
      return;
    case EventKind::StorageRelabelled:
      if (static_cast<uint8_t>(event.role) >= kRoleCount) return;
      if (StorageRow* row = find(event.storage)) {
        row->category = category_of(event.role);
        if (event.module) row->module = event.module;
      }
      return;
    case EventKind::StorageClaimed:
      if (event.birth_facts & ~kAllBirthFacts) return;
      if (StorageRow* row = find(event.storage)) {
        row->category = category_at_birth(event.birth_facts);
        if (event.op) row->op = event.op;
        if (traced.tensor != 0) row->tensor = traced.tensor;
        if (traced.stack != 0) row->stack = traced.stack;
      }
      return;
    case EventKind::StorageFreed:
      if (StorageRow* row = find(event.storage)) {
        row->freed = position.sequence;
        row->freed_ns = event.time_ns;
        touched_[event.storage].is_alive = false;
      }
      return;
    default:
      return;
  }
}

void StorageRows::commit() {
  for (const auto& [id, touched] : touched_) {
    if (!touched.is_alive) {
      live_.erase(id);
      continue;
    }
    const StorageRow& row = touched.is_new ? born_[touched.index] : changed_[touched.index];
    live_[id] = {row.born, row.size_bytes, row.category};
  }
  roll_back();
}

void StorageRows::roll_back() {
  born_.clear();
  changed_.clear();
  touched_.clear();
}

}  // namespace tidegauge::trace
