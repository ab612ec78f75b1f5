// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/events/event.h"
#include "core/ledger/conditions.h"
#include "core/ledger/ledger.h"
#include "core/modules/open_calls.h"

namespace tidegauge {

/// The queue of events for a Ledger. Capture runs between torch's kernels, which evict our code
/// from the instruction cache. So capture only appends an event. Many events are applied together
/// before the Ledger is read. conditions.h explains the Condition of an event.
///
///   add -> [enter][born][enter][born][exit][freed] ... [iteration begins] -> apply_to -> Ledger
///                        `---- a call ----'
///
/// If a queued call begins and ends before the module lists restart, its statistics are skipped:
/// nothing can read them any more. The Ledger answers as if it had received each event immediately.
class Backlog {
 public:
  void add(const Event& event, Condition condition = Condition::None) {
    add(event.kind, condition, [&](Event& place) { place = event; });
  }
  /// The same for an event that `fill(event)` writes in place. (Copying an event right after
  /// writing its fields one by one would stall the processor.)
  template <typename Fill>
  void add(EventKind kind, Condition condition, Fill&& fill) {
    if (!has_room()) grow();
    add_in_room(kind, condition, fill);
  }
  /// The same without growing. Requires `has_room`.
  template <typename Fill>
  void add_in_room(EventKind kind, Condition condition, Fill&& fill) {
    if (!has_room()) __builtin_unreachable();
    Captured& event = events_.emplace_back();
    fill(event);
    event.kind = kind;
    event.condition = condition;
    if (kind == EventKind::StorageRelabelled) has_labels_ |= condition == Condition::None;
  }
  bool empty() const { return events_.empty(); }
  bool has_room() const { return events_.size() != events_.capacity(); }
  bool is_full() const { return events_.size() >= kMaxEvents; }
  /// Makes room. A queue that is not full grows up to the size at which it is.
  [[gnu::noinline, gnu::cold]] void grow() {
    const size_t next = events_.capacity() * 2 + 64;
    events_.reserve(is_full() ? next : std::min(next, kMaxEvents));
  }

  /// Updates the open calls with the new events. Must be called before all functions below. Calls
  /// `visit(event, calls)` for each storage event, with the calls that are open at that event.
  template <typename Visit>
  void follow(Visit&& visit) {
    const size_t count = events_.size();
    const Captured* events = events_.data();
    for (size_t i = std::exchange(followed_, count); i < count; ++i) {
      if (is_of_storage(events[i].kind)) {
        visit(static_cast<const Event&>(events[i]), std::as_const(calls_));
      } else {
        follow_call(i);
      }
    }
  }
  /// The calls that are open after the last event that `follow` has seen.
  const OpenCalls& open_calls() const { return calls_; }
  /// True if a queued event may relabel a storage. Labels of new gradients do not count.
  bool has_labels() const { return has_labels_; }
  /// The answer of `ledger` after all queued events.
  bool has_statistics(ModuleId module, const Ledger& ledger) const;

  /// Applies all events and empties the queue. Requires `follow`. Calls `visit(event)` after each
  /// event that the Ledger has applied.
  template <typename Visit>
  void apply_to(Ledger& ledger, Visit&& visit);

  size_t footprint_bytes() const { return events_.capacity() * sizeof(Captured); }

 private:
  /// The entries that the event adds to the statistics of its module.
  enum class Entry : uint8_t {
    None,
    Some,
    WholeCall /* the other end of the call is queued too */
  };
  struct Captured : Event {
    Condition condition{};
    Entry entry{};
  };
  static_assert(sizeof(Captured) == sizeof(Event));
  static constexpr size_t kMaxEvents = 4096;
  static constexpr size_t kInLedger = SIZE_MAX;

  void follow_call(size_t position);

  std::vector<Captured> events_;
  size_t followed_ = 0;   // number of events that `follow` has seen
  OpenCalls calls_;       // mark: the position of the ModuleEnter, or kInLedger
  size_t restarted_ = 0;  // the module lists restart here: older statistics cannot be read
  bool has_labels_ = false;
};

template <typename Visit>
void Backlog::apply_to(Ledger& ledger, Visit&& visit) {
  const auto apply = [&](const Event& event) {
    ledger.apply(event);
    visit(event);
  };
  Captured* const events = events_.data();
  const size_t count = events_.size();
  for (size_t i = 0; i < count; ++i) {
    Captured& event = events[i];
    if (event.condition == Condition::HasSize) {
      apply(size_of_call(event));
      event.size_bytes = 0;
      event.condition = Condition::None;
    }
    if (event.condition != Condition::None) {
      apply_if_met(event, event.condition, ledger, visit);
    } else if (event.entry == Entry::WholeCall && i < restarted_) {
      ledger.skip(event);
    } else {
      apply(event);
    }
  }
  events_.clear();
  followed_ = 0;
  calls_.mark_all(kInLedger);
  restarted_ = 0;
  has_labels_ = false;
}

}  // namespace tidegauge
