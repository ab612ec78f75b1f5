// SPDX-License-Identifier: BSD-3-Clause
#include "trace/gap.h"

#include <algorithm>
#include <utility>

#include "core/events/steps_begun.h"

namespace tidegauge::trace {

bool begins_step(const Event& event) {
  return event.kind == EventKind::StepMarker || event.kind == EventKind::IterationBegin ||
         event.kind == EventKind::OptimizerStepEnd;
}

void Gap::add(const Gap& later) {
  const uint64_t events = lost_events_ + later.lost_events_;
  const uint64_t steps = lost_steps_ + later.lost_steps_;
  if (is_empty()) begin_ns_ = later.begin_ns_;
  for (const CodedEvent& traced : later.net()) {
    lost_events_ = 1;  // 0 would mean that the gap begins here
    add(traced);
  }
  for (const UnitEvent& event : later.net_of_units()) add(event);
  lost_events_ = events;
  lost_steps_ = steps;
  end_ns_ = later.end_ns_;
}

void Gap::add(const CodedEvent& traced) {
  const Event& event = traced.event;
  if (lost_events_++ == 0) begin_ns_ = event.time_ns;
  end_ns_ = event.time_ns;
  switch (event.kind) {
    case EventKind::StorageBorn:
    case EventKind::StorageResized:
    case EventKind::StorageRelabelled:
    case EventKind::StorageClaimed:
    case EventKind::StorageFreed:
      return add_storage(traced);
    case EventKind::ModuleEnter:
    case EventKind::ModuleExit:
      return add_call(traced);
    case EventKind::ModuleMark:
      return;
    case EventKind::ModuleSize:
      sizes_[{event.module, event.size_of}] = traced;
      return;
    case EventKind::OptimizerStepBegin:
    case EventKind::OptimizerStepEnd:
      return nest(optimizer_steps_, traced, event.kind == EventKind::OptimizerStepBegin);
    case EventKind::CollectiveBegin:
    case EventKind::CollectiveEnd:
      return nest(collectives_, traced, event.kind == EventKind::CollectiveBegin);
    case EventKind::StepMarker:
      lost_steps_ += steps_begun(event);
      net_steps_ += steps_begun(event);
      step_ = traced;
      return;
    case EventKind::StatisticsReset:
      sizes_.clear();
      statistics_reset_ = traced;
      return;
    case EventKind::IterationBegin:
      iteration_ = traced;
      return;
    case EventKind::PeakReset:
      peak_reset_ = traced;
      return;
    case EventKind::ModuleGone:
      sizes_.erase(sizes_.lower_bound({event.module, SizeOf{}}),
                   sizes_.lower_bound({ModuleId(event.module.value + 1), SizeOf{}}));
      gone_[event.module] = traced;
      return;
    case EventKind::AllocationFailed:
      failures_.push_back(traced);
      return;
  }
}

void Gap::add(const UnitEvent& event) {
  switch (event.kind) {
    case UnitEventKind::StorageOwned:
      owners_[event.storage] = event;
      return;
    case UnitEventKind::Released:
    case UnitEventKind::ReleasedToPostForwardShard:
      gatherings_[event.unit] = {event};
      return;
    case UnitEventKind::GatherBegun:
    case UnitEventKind::GatherFinished:
      gatherings_[event.unit].push_back(event);
      return;
    case UnitEventKind::Reduced:
      return;
  }
}

std::vector<UnitEvent> Gap::net_of_units() const {
  std::vector<UnitEvent> events;
  events.reserve(events.size() + owners_.size());
  for (const auto& [storage, event] : owners_) events.push_back(event);
  for (const auto& [unit, each] : gatherings_)
    events.insert(events.end(), each.begin(), each.end());
  return events;
}

void Gap::add_storage(const CodedEvent& traced) {
  const auto [it, is_new] = storages_.try_emplace(traced.event.storage);
  Change& change = it->second;
  if (is_new) change.order = next_order_++;
  switch (traced.event.kind) {
    case EventKind::StorageBorn:
      change.born = traced;
      return;
    case EventKind::StorageResized:
      if (change.born) {
        change.born->event.size_bytes = traced.event.size_bytes;
      } else {
        change.resized = traced;
      }
      return;
    case EventKind::StorageRelabelled:
      if (traced.event.since == Since::Birth) {
        change.since_birth = traced;
        change.from_now.reset();
      } else {
        change.from_now = traced;
      }
      return;
    case EventKind::StorageClaimed:
      change.claimed = traced;
      change.since_birth = change.from_now = std::nullopt;
      return;
    default:
      break;
  }
  owners_.erase(traced.event.storage);
  std::vector<CodedEvent> ended = std::move(change.ended);
  if (!change.born) {
    if (change.claimed) ended.push_back(*change.claimed);
    if (change.since_birth) ended.push_back(*change.since_birth);
    ended.push_back(traced);
  }
  if (ended.empty()) {
    storages_.erase(it);
  } else {
    const uint64_t order = change.order;
    change = {};
    change.order = order;
    change.ended = std::move(ended);
  }
}

void Gap::add_call(const CodedEvent& traced) {
  if (traced.event.kind == EventKind::ModuleEnter) {
    const size_t mark = enters_.empty() ? 0 : enters_.rbegin()->first + 1;
    if (calls_.enter(traced.event, mark)) enters_.emplace(mark, traced);
  } else if (const std::optional<OpenCalls::Call> call = calls_.leave(traced.event)) {
    enters_.erase(call->mark);
  } else {
    exits_.push_back(traced);
  }
}

void Gap::nest(Nesting& nesting, const CodedEvent& traced, bool begins) {
  if (begins) {
    nesting.begins.push_back(traced);
  } else if (!nesting.begins.empty()) {
    nesting.begins.pop_back();
  } else {
    nesting.ends.push_back(traced);
  }
}

void Gap::append_steps(std::vector<CodedEvent>& events) const {
  CodedEvent marker = *step_;
  marker.event.size_bytes = joins_steps_ && net_steps_ > 1 ? static_cast<int64_t>(net_steps_) : 0;
  events.insert(events.end(), joins_steps_ ? 1 : net_steps_, marker);
}

std::vector<CodedEvent> Gap::net() const {
  std::vector<CodedEvent> events;
  const auto append = [&](const std::optional<CodedEvent>& one) {
    if (one) events.push_back(*one);
  };
  const auto append_all = [&](const std::vector<CodedEvent>& all) {
    events.insert(events.end(), all.begin(), all.end());
  };
  append(statistics_reset_);
  append(iteration_);
  append_all(exits_);
  append_all(optimizer_steps_.ends);
  append_all(collectives_.ends);
  for (const auto& [module, traced] : gone_) events.push_back(traced);

  std::vector<const Change*> changes;
  changes.reserve(storages_.size());
  for (const auto& [id, change] : storages_) changes.push_back(&change);
  std::sort(changes.begin(), changes.end(),
            [](const Change* a, const Change* b) { return a->order < b->order; });
  for (const Change* change : changes) append_all(change->ended);
  for (const Change* change : changes) {
    append(change->born);
    append(change->resized);
    append(change->claimed);
    append(change->since_birth);
    append(change->from_now);
  }

  for (const auto& [key, traced] : sizes_) events.push_back(traced);
  if (step_) append_steps(events);
  append_all(optimizer_steps_.begins);
  append_all(collectives_.begins);
  for (const auto& [mark, traced] : enters_) events.push_back(traced);
  append(peak_reset_);
  append_all(failures_);
  return events;
}

}  // namespace tidegauge::trace
