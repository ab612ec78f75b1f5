// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/ledger.h"

#include <algorithm>

#include "core/events/steps_begun.h"
#include "core/ledger/labeller.h"

namespace tidegauge {
namespace {

// The module states of one phase of a call. A recompute has no peak of its own: it is part of the
// backward that runs it.
struct PhaseStates {
  ModuleState before;
  ModuleState after;
  std::optional<ModuleState> peak;
};
constexpr std::array<PhaseStates, kPhaseCount> kStatesOfPhase = {{
    {ModuleState::PreForward, ModuleState::PostForward, ModuleState::PeakForward},
    {ModuleState::PreBackward, ModuleState::PostBackward, ModuleState::PeakBackward},
    {ModuleState::PreForwardAc, ModuleState::PostForwardAc, std::nullopt},
}};

/// False for values that only a damaged trace contains.
bool is_label(const Event& event) {
  return static_cast<uint8_t>(event.role) < kRoleCount && event.since <= Since::Birth;
}

const PhaseStates& states_of(Phase phase) { return kStatesOfPhase[static_cast<size_t>(phase)]; }

}  // namespace

inline void Ledger::begin(const Event& event) {
  ++now_.sequence;
  now_.time_ns = event.time_ns;
}

inline void Ledger::begin_of_storage(const Event& event) {
  begin(event);
  changed_sequence_ = now_.sequence;
}

inline void Ledger::settle_and_trim_if_due() {
  if (late_labels_.size() + remembered_since_trim_ > options_.settle_after) settle_and_trim();
}

void Ledger::apply(const Event& event) {
  begin(event);
  if (is_of_storage(event.kind)) changed_sequence_ = now_.sequence;
  switch (event.kind) {
    case EventKind::StorageBorn:
      return storage_born(event);
    case EventKind::StorageResized:
      return storage_resized(event);
    case EventKind::StorageRelabelled:
      if (!is_label(event)) return reject(Anomaly::UnknownEvent, event);
      if (StorageRecord* record = find_live(event, Anomaly::RelabelOfUnknown)) {
        storage_relabelled(event, *record);
      }
      return;
    case EventKind::StorageFreed:
      if (StorageRecord* record = find_live(event, Anomaly::FreeOfUnknown)) storage_freed(*record);
      return;
    case EventKind::ModuleEnter:
      return module_enter(event);
    case EventKind::ModuleExit:
      return module_exit(event);
    case EventKind::ModuleMark:
      return module_mark(event);
    case EventKind::ModuleSize:
      return module_size(event);
    case EventKind::OptimizerStepBegin:
    case EventKind::OptimizerStepEnd:
      nest(optimizer_depth_, event.kind == EventKind::OptimizerStepBegin,
           Anomaly::OptimizerStepEndWithoutBegin, event);
      now_.in_optimizer_step = optimizer_depth_ > 0;
      return;
    case EventKind::CollectiveBegin:
    case EventKind::CollectiveEnd:
      nest(collective_depth_, event.kind == EventKind::CollectiveBegin,
           Anomaly::CollectiveEndWithoutBegin, event);
      now_.in_collective = collective_depth_ > 0;
      return;
    case EventKind::StepMarker:
      return step_marker(steps_begun(event));
    case EventKind::StatisticsReset:
      module_log_.forget_sizes();
      return restart_lists();
    case EventKind::IterationBegin:
      return restart_lists();
    case EventKind::PeakReset:
      return peak_reset();
    case EventKind::ModuleGone:
      return module_log_.forget(event.module);
    case EventKind::StorageClaimed:
      return storage_claimed(event);
    case EventKind::AllocationFailed:
      if (event.size_bytes < 0) reject(Anomaly::NegativeSize, event);
      return;
  }
  reject(Anomaly::UnknownEvent, event);
}

void Ledger::apply_relabelled(const Event& event, StorageRecord& record) {
  begin_of_storage(event);
  if (!is_label(event)) return reject(Anomaly::UnknownEvent, event);
  storage_relabelled(event, record);
}

void Ledger::apply_freed(const Event& event, StorageRecord& record) {
  begin_of_storage(event);
  storage_freed(record);
}

void Ledger::skip(const Event& event) { begin(event); }

void Ledger::reject(Anomaly anomaly, const Event& event) {
  anomalies_.count(anomaly, event, now_.sequence);
}

// ---- storages ----

void Ledger::storage_born(const Event& event) {
  if (!event.storage) return reject(Anomaly::NoStorage, event);
  if (event.size_bytes < 0) return reject(Anomaly::NegativeSize, event);
  if (event.birth_facts & ~kAllBirthFacts) {
    return reject(Anomaly::UnknownEvent, event);
  }
  const auto [record, is_new] = storages_.insert(event.storage);
  if (!is_new) return reject(Anomaly::AlreadyBorn, event);
  record->device_slot = frames_.slot_of(event.device);
  record->category = category_at_birth(event.birth_facts);
  record->size_bytes = event.size_bytes;
  record->since_sequence = now_.sequence;
  if (!frames_[record->device_slot].add(record->category, event.size_bytes, now_)) {
    storages_.erase(record);
    reject(Anomaly::TotalTooLarge, event);
  }
}

void Ledger::storage_resized(const Event& event) {
  if (event.size_bytes < 0) return reject(Anomaly::NegativeSize, event);
  StorageRecord* record = find_live(event, Anomaly::ResizeOfUnknown);
  if (!record || record->size_bytes == event.size_bytes) return;
  PeakStack& stack = frames_[record->device_slot];
  const int64_t growth_bytes = event.size_bytes - record->size_bytes;
  if (growth_bytes < 0) {
    stack.remove(record->category, -growth_bytes, now_);
  } else if (!stack.add(record->category, growth_bytes, now_)) {
    return reject(Anomaly::TotalTooLarge, event);
  }
  remember(*record);
  record->size_bytes = event.size_bytes;
  settle_and_trim_if_due();
}

void Ledger::storage_relabelled(const Event& event, StorageRecord& record) {
  const Category category = category_of(event.role);
  if (event.since == Since::Birth) {
    relabel_since_birth(record, category);
  } else if (record.category != category) {
    frames_[record.device_slot].move(record.category, category, record.size_bytes, now_);
    remember(record);
    record.category = category;
  }
  settle_and_trim_if_due();
}

void Ledger::storage_claimed(const Event& event) {
  if (event.birth_facts & ~kAllBirthFacts) return reject(Anomaly::UnknownEvent, event);
  StorageRecord* record = find_live(event, Anomaly::RelabelOfUnknown);
  if (!record) return;
  relabel_since_birth(*record, category_at_birth(event.birth_facts));
  settle_and_trim_if_due();
}

void Ledger::relabel_since_birth(StorageRecord& record, Category category) {
  const auto owe = [&](uint64_t from, uint64_t to, int64_t size_bytes, Category old) {
    late_labels_.add({from, to, size_bytes, record.device_slot, old, category});
  };
  history_.relabel(record, category, [&](const StorageHistory::Piece& piece) {
    owe(piece.from_sequence, piece.to_sequence, piece.size_bytes, piece.category);
  });
  if (record.category == category) return;
  // Nearly all gradients are labelled before any split is stored. Then there is nothing to correct.
  if (record.since_sequence <= newest_stored_sequence(record.device_slot)) {
    owe(record.since_sequence, now_.sequence, record.size_bytes, record.category);
  }
  frames_[record.device_slot].correct(record.category, category, record.size_bytes);
  record.category = category;
}

void Ledger::storage_freed(StorageRecord& record) {
  frames_[record.device_slot].remove(record.category, record.size_bytes, now_);
  if (record.history != kNoHistory) history_.forget(record);
  storages_.erase(&record);
}

StorageRecord* Ledger::find_live(const Event& event, Anomaly if_unknown) {
  StorageRecord* record = storages_.find(event.storage);
  if (!record) {
    reject(event.storage ? if_unknown : Anomaly::NoStorage, event);
  }
  return record;
}

// Called before the size or category changes, but after the PeakStack has changed, because that may
// have stored a peak.
void Ledger::remember(StorageRecord& record) {
  if (record.size_bytes > 0 &&
      record.since_sequence <= newest_stored_sequence(record.device_slot)) {
    history_.remember(record, now_.sequence);
    ++remembered_since_trim_;
  }
  record.since_sequence = now_.sequence;
}

// ---- frames: run, steps, module calls ----

void Ledger::module_enter(const Event& event) {
  if (!event.module) return reject(Anomaly::NoModule, event);
  if (!is_phase(event.phase)) return reject(Anomaly::UnknownEvent, event);
  take_snapshot(event.module, states_of(event.phase).before, now_.sequence);
  frames_.open(PeakFrames::Kind::Call, now_);
  calls_.enter(event, now_.sequence);
}

void Ledger::module_exit(const Event& event) {
  if (!event.module) return reject(Anomaly::NoModule, event);
  if (!is_phase(event.phase)) return reject(Anomaly::UnknownEvent, event);
  const std::optional<OpenCalls::Call> ended = calls_.leave(event);
  if (!ended) return reject(Anomaly::ExitWithoutEnter, event);
  const uint64_t call = ended->mark;
  const size_t frame = frames_.find_opened(call);
  const PhaseStates& states = states_of(event.phase);
  take_snapshot(event.module, states.after, call);
  if (states.peak) {
    module_log_.begin(event.module, *states.peak, call, now_);
    frames_.close(frame, now_,
                  [&](uint16_t slot, const Moment& highest) { module_log_.add(slot) = highest; });
  } else {
    frames_.close(frame, now_, [](uint16_t, const Moment&) {});
  }
}

void Ledger::module_mark(const Event& event) {
  if (!event.module) return reject(Anomaly::NoModule, event);
  if (!is_mark(event.state)) return reject(Anomaly::UnknownEvent, event);
  take_snapshot(event.module, event.state, 0);
}

void Ledger::module_size(const Event& event) {
  if (!event.module) return reject(Anomaly::NoModule, event);
  if (event.size_bytes < 0) return reject(Anomaly::NegativeSize, event);
  if (static_cast<uint8_t>(event.size_of) >= kSizeOfCount) {
    return reject(Anomaly::UnknownEvent, event);
  }
  module_log_.set_size(event.module, event.size_of, event.size_bytes);
}

void Ledger::take_snapshot(ModuleId module, ModuleState state, uint64_t call) {
  newest_snapshot_sequence_ = now_.sequence;
  if (!module_log_.begin_present(module, state, call, now_, changed_sequence_)) return;
  const auto device_count = static_cast<uint16_t>(frames_.devices().size());
  for (uint16_t slot = 0; slot < device_count; ++slot) {
    const PeakStack& stack = frames_[slot];
    if (stack.total_bytes() == 0) continue;
    Moment& moment = module_log_.add(slot);
    moment.at = now_;
    moment.state_sequence = now_.sequence;
    moment.total_bytes = stack.total_bytes();
    moment.split = stack.split();
  }
}

void Ledger::restart_lists() {
  module_log_.restart_lists();
  settle();  // now, because only few splits are left to correct
}

void Ledger::nest(uint64_t& depth, bool begins, Anomaly if_none, const Event& event) {
  if (begins) {
    ++depth;
  } else if (depth > 0) {
    --depth;
  } else {
    reject(if_none, event);
  }
}

void Ledger::step_marker(uint32_t steps_begun) {
  const uint32_t last = now_.step;
  now_.step += steps_begun;
  if (const std::optional<size_t> running = frames_.find(PeakFrames::Kind::Step)) {
    ClosedStep closed{last, now_, {}};
    frames_.close(*running, now_, [&](uint16_t slot, const Moment& highest) {
      closed.moments.push_back({slot, highest});
    });
    closed_steps_.push_back(std::move(closed));
    if (closed_steps_.size() > options_.kept_steps) closed_steps_.pop_front();
    newest_snapshot_sequence_ = now_.sequence;
  }
  frames_.open(PeakFrames::Kind::Step, now_);
}

void Ledger::peak_reset() {
  // Open the new frame first: a stack always has at least one frame.
  const std::optional<size_t> old = frames_.find(PeakFrames::Kind::Run);
  frames_.open(PeakFrames::Kind::Run, now_);
  frames_.close(*old, now_, [](uint16_t, const Moment&) {});
}

}  // namespace tidegauge
