// SPDX-License-Identifier: BSD-3-Clause
#include "brute_force.h"

#include <algorithm>
#include <limits>

#include "core/events/steps_begun.h"
#include "core/ledger/labeller.h"

namespace tidegauge {

void BruteForce::apply(const Event& event) {
  cache_.clear();
  Instant instant = instants_.back();
  ++instant.sequence;
  instant.time_ns = event.time_ns;
  instants_.push_back(instant);
  for (Life& life : lives_) {
    if (life.is_alive) life.states.push_back(life.states.back());
  }
  if (const std::optional<Anomaly> fault = find_fault(event)) {
    ++anomalies_[static_cast<size_t>(*fault)];
  } else {
    change(event);
  }
  instants_.back().step = step_numbers_.empty() ? 0 : step_numbers_.back();
  instants_.back().in_optimizer_step = optimizer_steps_ > 0;
  instants_.back().in_collective = collectives_ > 0;
}

std::optional<Anomaly> BruteForce::find_fault(const Event& event) const {
  const auto number = [](auto value) { return static_cast<int>(value); };
  const int kind = number(event.kind);
  if (kind < number(EventKind::StorageBorn) || kind > number(EventKind::AllocationFailed)) {
    return Anomaly::UnknownEvent;
  }
  if (event.kind == EventKind::OptimizerStepEnd && optimizer_steps_ == 0) {
    return Anomaly::OptimizerStepEndWithoutBegin;
  }
  if (event.kind == EventKind::CollectiveEnd && collectives_ == 0) {
    return Anomaly::CollectiveEndWithoutBegin;
  }

  const bool is_claim = event.kind == EventKind::StorageClaimed;
  if (is_claim && event.birth_facts > kAllBirthFacts) return Anomaly::UnknownEvent;
  const bool is_storage = is_claim || kind <= number(EventKind::StorageFreed);
  const bool is_module =
      kind >= number(EventKind::ModuleEnter) && kind <= number(EventKind::ModuleSize);
  const bool is_relabel = event.kind == EventKind::StorageRelabelled;
  if (is_relabel && (number(event.role) >= kRoleCount || number(event.since) > 1)) {
    return Anomaly::UnknownEvent;
  }
  if (event.kind == EventKind::StorageResized && event.size_bytes < 0) {
    return Anomaly::NegativeSize;
  }
  if (is_storage && !event.storage) return Anomaly::NoStorage;
  if (is_module && !event.module) return Anomaly::NoModule;
  const bool has_size = event.kind == EventKind::StorageBorn ||
                        event.kind == EventKind::ModuleSize ||
                        event.kind == EventKind::AllocationFailed;
  if (has_size && event.size_bytes < 0) return Anomaly::NegativeSize;

  const Life* life = is_storage ? find_alive(event.storage) : nullptr;
  const auto would_overflow = [&](Device device, int64_t growth_bytes) {
    const int64_t total = split_at(now(), device).total();
    return growth_bytes > 0 && total > std::numeric_limits<int64_t>::max() - growth_bytes;
  };
  switch (event.kind) {
    case EventKind::StorageBorn:
      if (event.birth_facts > kAllBirthFacts) return Anomaly::UnknownEvent;
      if (life) return Anomaly::AlreadyBorn;
      if (would_overflow(event.device, event.size_bytes)) return Anomaly::TotalTooLarge;
      break;
    case EventKind::StorageResized:
      if (!life) return Anomaly::ResizeOfUnknown;
      if (would_overflow(life->device, event.size_bytes - life->states.back().size_bytes)) {
        return Anomaly::TotalTooLarge;
      }
      break;
    case EventKind::StorageRelabelled:
    case EventKind::StorageClaimed:
      if (!life) return Anomaly::RelabelOfUnknown;
      break;
    case EventKind::StorageFreed:
      if (!life) return Anomaly::FreeOfUnknown;
      break;
    case EventKind::ModuleEnter:
    case EventKind::ModuleExit:
      if (number(event.phase) >= kPhaseCount) return Anomaly::UnknownEvent;
      if (event.kind == EventKind::ModuleExit && !find_open_call(event)) {
        return Anomaly::ExitWithoutEnter;
      }
      break;
    case EventKind::ModuleMark:
      if (number(event.state) < 8 || number(event.state) > 15) return Anomaly::UnknownEvent;
      break;
    case EventKind::ModuleSize:
      if (number(event.size_of) >= kSizeOfCount) return Anomaly::UnknownEvent;
      break;
    default:
      break;
  }
  return std::nullopt;
}

void BruteForce::change(const Event& event) {
  switch (event.kind) {
    case EventKind::StorageBorn: {
      const State state{event.size_bytes, category_at_birth(event.birth_facts)};
      lives_.push_back({event.storage, event.device, now(), {state}});
      if (std::find(devices_.begin(), devices_.end(), event.device) == devices_.end()) {
        devices_.push_back(event.device);
      }
      break;
    }
    case EventKind::StorageResized:
      find_alive(event.storage)->states.back().size_bytes = event.size_bytes;
      break;
    case EventKind::StorageRelabelled: {
      Life* life = find_alive(event.storage);
      const Category category = category_of(event.role);
      if (event.since == Since::Now) {
        life->states.back().category = category;
      } else {
        for (State& state : life->states) state.category = category;
      }
      break;
    }
    case EventKind::StorageClaimed:
      for (State& state : find_alive(event.storage)->states) {
        state.category = category_at_birth(event.birth_facts);
      }
      break;
    case EventKind::StorageFreed: {
      Life* life = find_alive(event.storage);
      life->states.pop_back();
      life->is_alive = false;
      break;
    }
    case EventKind::ModuleEnter: {
      const ModuleState states[] = {ModuleState::PreForward, ModuleState::PreBackward,
                                    ModuleState::PreForwardAc};
      calls_.push_back({event.module, event.phase, event.thread, now()});
      entries_.push_back(
          {event.module, states[static_cast<int>(event.phase)], now(), now(), now()});
      break;
    }
    case EventKind::ModuleExit: {
      const ModuleState states[] = {ModuleState::PostForward, ModuleState::PostBackward,
                                    ModuleState::PostForwardAc};
      Call* call = const_cast<Call*>(find_open_call(event));
      call->exit = now();
      entries_.push_back(
          {event.module, states[static_cast<int>(event.phase)], call->enter, now(), now()});
      if (event.phase != Phase::Recompute) {
        const ModuleState peak =
            event.phase == Phase::Forward ? ModuleState::PeakForward : ModuleState::PeakBackward;
        entries_.push_back({event.module, peak, call->enter, call->enter, now()});
      }
      break;
    }
    case EventKind::ModuleMark:
      entries_.push_back({event.module, event.state, 0, now(), now()});
      break;
    case EventKind::ModuleSize:
      sizes_[event.module][static_cast<size_t>(event.size_of)] = event.size_bytes;
      break;
    case EventKind::OptimizerStepBegin:
      ++optimizer_steps_;
      break;
    case EventKind::OptimizerStepEnd:
      --optimizer_steps_;
      break;
    case EventKind::CollectiveBegin:
      ++collectives_;
      break;
    case EventKind::CollectiveEnd:
      --collectives_;
      break;
    case EventKind::StepMarker:
      step_markers_.push_back(now());
      step_numbers_.push_back(instants_.back().step + steps_begun(event));
      break;
    case EventKind::StatisticsReset:
      sizes_.clear();
      entries_.clear();
      break;
    case EventKind::IterationBegin:
      entries_.clear();
      break;
    case EventKind::PeakReset:
      peak_from_ = now();
      break;
    case EventKind::ModuleGone:
      sizes_.erase(event.module);
      std::erase_if(entries_, [&](const auto& entry) { return entry.module == event.module; });
      break;
    case EventKind::AllocationFailed:
      break;
  }
}

const BruteForce::Life* BruteForce::find_alive(StorageId id) const {
  for (const Life& life : lives_) {
    if (life.is_alive && life.id == id) return &life;
  }
  return nullptr;
}

BruteForce::Life* BruteForce::find_alive(StorageId id) {
  return const_cast<Life*>(std::as_const(*this).find_alive(id));
}

const BruteForce::Call* BruteForce::find_open_call(const Event& event) const {
  const Call* same_thread = nullptr;
  const Call* any_thread = nullptr;
  for (const Call& call : calls_) {
    if (call.exit != 0 || call.module != event.module || call.phase != event.phase) continue;
    any_thread = &call;
    if (call.thread == event.thread) same_thread = &call;
  }
  if (same_thread || event.phase != Phase::Backward) return same_thread;
  return any_thread;
}

CategorySplit BruteForce::split_at(uint64_t sequence, Device device) const {
  CategorySplit split;
  for (const Life& life : lives_) {
    if (life.device != device || sequence < life.born) continue;
    if (sequence >= life.born + life.states.size()) continue;
    const State& state = life.states[sequence - life.born];
    split[state.category] += state.size_bytes;
  }
  return split;
}

const std::vector<CategorySplit>& BruteForce::splits_of(Device device) const {
  std::vector<CategorySplit>& splits = cache_[device];
  if (splits.empty()) {
    for (uint64_t s = 0; s <= now(); ++s) splits.push_back(split_at(s, device));
  }
  return splits;
}

Snapshot BruteForce::highest(uint64_t first, uint64_t last) const {
  Snapshot snapshot{instants_[last], {}};
  for (const Device device : devices_) {
    const std::vector<CategorySplit>& splits = splits_of(device);
    uint64_t best = first;
    for (uint64_t s = first; s <= last; ++s) {
      if (splits[s].total() > splits[best].total()) best = s;
    }
    if (splits[best].total() == 0) continue;
    snapshot.devices.push_back({device, instants_[best], splits[best]});
  }
  return snapshot;
}

Snapshot BruteForce::current() const {
  Snapshot snapshot{instants_.back(), {}};
  for (const Device device : devices_) {
    const CategorySplit split = split_at(now(), device);
    if (split.total() > 0) snapshot.devices.push_back({device, instants_.back(), split});
  }
  return snapshot;
}

Snapshot BruteForce::peak() const { return highest(peak_from_, now()); }

std::vector<ModuleId> BruteForce::modules() const {
  std::vector<ModuleId> modules;
  for (const Entry& entry : entries_) {
    if (std::find(modules.begin(), modules.end(), entry.module) == modules.end()) {
      modules.push_back(entry.module);
    }
  }
  return modules;
}

ModuleStats BruteForce::module_stats(ModuleId module) const {
  ModuleStats stats;
  if (sizes_.contains(module)) stats.sizes = sizes_.at(module);
  const auto add = [&](const Entry& entry, bool is_open) {
    stats.snapshots[static_cast<size_t>(entry.state)].push_back(
        {entry.call, is_open, highest(entry.first, entry.last)});
  };
  for (const Entry& entry : entries_) {
    if (entry.module == module) add(entry, false);
  }
  for (const Call& call : calls_) {
    if (call.module != module || call.exit != 0) continue;
    if (call.phase == Phase::Forward) {
      add({module, ModuleState::PeakForward, call.enter, call.enter, now()}, true);
    }
    if (call.phase == Phase::Backward) {
      add({module, ModuleState::PeakBackward, call.enter, call.enter, now()}, true);
    }
  }
  for (std::vector<ModuleSnapshot>& list : stats.snapshots) {
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) { return a.call < b.call; });
  }
  return stats;
}

std::vector<StepPeak> BruteForce::step_peaks() const {
  std::vector<StepPeak> peaks;
  for (size_t i = 0; i < step_markers_.size(); ++i) {
    const bool is_open = i + 1 == step_markers_.size();
    const uint64_t last = is_open ? now() : step_markers_[i + 1];
    peaks.push_back({step_numbers_[i], is_open, highest(step_markers_[i], last)});
  }
  return peaks;
}

std::optional<StorageInfo> BruteForce::find_storage(StorageId storage) const {
  const Life* life = find_alive(storage);
  if (!life) return std::nullopt;
  return StorageInfo{life->device, life->states.back().size_bytes, life->states.back().category};
}

size_t BruteForce::storage_count() const {
  return static_cast<size_t>(
      std::count_if(lives_.begin(), lives_.end(), [](const Life& life) { return life.is_alive; }));
}

}  // namespace tidegauge
