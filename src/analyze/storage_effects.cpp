// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/storage_effects.h"

#include <utility>

#include "core/events/steps_begun.h"
#include "core/ledger/labeller.h"

namespace tidegauge::trace {
namespace {

/// True if a ledger that only counts bytes can ignore the event.
bool is_of_module(EventKind kind) {
  switch (kind) {
    case EventKind::ModuleEnter:
    case EventKind::ModuleExit:
    case EventKind::ModuleMark:
    case EventKind::ModuleSize:
    case EventKind::ModuleGone:
      return true;
    default:
      return false;
  }
}

void set_label_facts(StorageEffect& effect, const Event& event) {
  const bool is_claimed = event.kind == EventKind::StorageClaimed;
  effect.is_label = is_claimed || event.kind == EventKind::StorageRelabelled;
  effect.is_since_birth = is_claimed || (effect.is_label && event.since == Since::Birth);
}

void nest(uint64_t& depth, bool begins) {
  if (begins) {
    ++depth;
  } else if (depth > 0) {
    --depth;
  }
}

}  // namespace

std::optional<StorageEffect> StorageEffects::apply(const Event& event) {
  if (!is_of_storage(event.kind)) {
    if (is_of_module(event.kind)) {
      ledger_.skip(event);
    } else {
      ledger_.apply(event);
      refused_count_ = ledger_.anomalies().total();
    }
    return std::nullopt;
  }
  std::optional<StorageEffect> effect(std::in_place);
  StorageRecord* record =
      event.kind == EventKind::StorageBorn ? nullptr : ledger_.find_record(event.storage);
  if (record != nullptr) effect->before = describe(*record);
  if (record != nullptr && event.kind == EventKind::StorageFreed) {
    ledger_.apply_freed(event, *record);
    return effect;
  }
  if (record != nullptr && event.kind == EventKind::StorageRelabelled) {
    ledger_.apply_relabelled(event, *record);
  } else {
    ledger_.apply(event);
    record = ledger_.find_record(event.storage);
  }
  const uint64_t refused_before = std::exchange(refused_count_, ledger_.anomalies().total());
  if (refused_count_ != refused_before) return std::nullopt;
  if (event.kind == EventKind::StorageBorn) learn_device(*record, event.device);
  effect->after = describe(*record);
  set_label_facts(*effect, event);
  return effect;
}

void StorageEffects::learn_device(const StorageRecord& record, Device device) {
  if (record.device_slot >= devices_.size()) devices_.resize(record.device_slot + size_t{1});
  devices_[record.device_slot] = device;
}

const StorageEffect* RepeatedEffects::apply(const Event& event) {
  advance(event);
  if (!is_of_storage(event.kind) || skip_refused()) return nullptr;
  effect_.before.reset();
  effect_.after.reset();
  set_label_facts(effect_, event);
  if (event.kind == EventKind::StorageBorn) {
    LiveStorage* live = live_.insert(event.storage).first;
    live->info = {event.device, event.size_bytes, category_at_birth(event.birth_facts)};
    if (free_places_.empty()) {
      live->place = static_cast<uint32_t>(live_.size() - 1);
    } else {
      live->place = free_places_.back();
      free_places_.pop_back();
    }
    place_ = live->place;
    effect_.after = live->info;
    return &effect_;
  }
  LiveStorage* live = live_.find(event.storage);
  if (live == nullptr) return nullptr;
  place_ = live->place;
  effect_.before = live->info;
  switch (event.kind) {
    case EventKind::StorageFreed:
      free_places_.push_back(live->place);
      live_.erase(live);
      return &effect_;
    case EventKind::StorageResized:
      live->info.size_bytes = event.size_bytes;
      break;
    case EventKind::StorageRelabelled:
      live->info.category = category_of(event.role);
      break;
    default:
      live->info.category = category_at_birth(event.birth_facts);
      break;
  }
  effect_.after = live->info;
  return &effect_;
}

void RepeatedEffects::advance(const Event& event) {
  ++now_.sequence;
  now_.time_ns = event.time_ns;
  switch (event.kind) {
    case EventKind::StepMarker:
      now_.step += steps_begun(event);
      return;
    case EventKind::OptimizerStepBegin:
    case EventKind::OptimizerStepEnd:
      nest(optimizer_depth_, event.kind == EventKind::OptimizerStepBegin);
      now_.in_optimizer_step = optimizer_depth_ > 0;
      return;
    case EventKind::CollectiveBegin:
    case EventKind::CollectiveEnd:
      nest(collective_depth_, event.kind == EventKind::CollectiveBegin);
      now_.in_collective = collective_depth_ > 0;
      return;
    default:
      return;
  }
}

bool RepeatedEffects::skip_refused() {
  if (next_refused_ == refused_.size() || refused_[next_refused_] != now_.sequence) return false;
  ++next_refused_;
  return true;
}

}  // namespace tidegauge::trace
