// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/events/event.h"
#include "core/ledger/conditions.h"
#include "core/ledger/ledger.h"
#include "core/modules/open_calls.h"

namespace tidegauge {

/// The queue of events for a Ledger. Capture runs between torch's kernels, where our code has left
/// the instruction cache: there it only appends an event, and later many are applied in one go,
/// before the Ledger answers a question. What the Condition of an event means: conditions.h.
///
///   add -> [enter][born][enter][born][exit][freed] ... [iteration begins] -> apply_to -> Ledger
///                        `---- a call ----'
///
/// A call that begins and ends before the module lists restart is passed over: nothing read its
/// statistics, and nothing can any more. The Ledger answers as if it had got each event at once.
class Backlog {
 public:
  void add(const Event& event, Condition condition = Condition::None) {
    add(event.kind, condition, [&](Event& place) { place = event; });
  }
  /// The same for an event of this kind that `fill(event)` writes in place. (Copying an event just
  /// after its fields were written one by one stalls the processor.)
  template <typename Fill>
  void add(EventKind kind, Condition condition, Fill&& fill) {
    if (events_.size() == events_.capacity()) grow();
    if (events_.size() == events_.capacity()) __builtin_unreachable();
    Captured& event = events_.emplace_back();
    fill(event);
    event.kind = kind;
    event.condition = condition;
    if (kind == EventKind::StorageRelabelled) has_labels_ |= condition == Condition::None;
  }
  bool empty() const { return events_.empty(); }
  bool is_full() const { return events_.size() >= kMaxEvents; }

  /// Finds out which calls the new events open and close; to be called before all functions below.
  /// Calls `visit(event, calls)` for each event of a storage, with the calls that are open then.
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
  /// As of the last event that was followed.
  const OpenCalls& open_calls() const { return calls_; }
  /// True if a queued event may relabel a storage, other than to mark a new gradient.
  bool has_labels() const { return has_labels_; }
  /// What `ledger` will answer once the queue is applied.
  bool has_statistics(ModuleId module, const Ledger& ledger) const;

  /// Applies all events, each of which was followed, and empties the queue. Calls `visit(event)`
  /// after each event that the Ledger got.
  template <typename Visit>
  void apply_to(Ledger& ledger, Visit&& visit);

  size_t footprint_bytes() const { return events_.capacity() * sizeof(Captured); }

 private:
  /// What the event adds to the statistics of its module.
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

  [[gnu::noinline, gnu::cold]] void grow() { events_.reserve(events_.capacity() * 2 + 64); }
  void follow_call(size_t position);

  std::vector<Captured> events_;
  size_t followed_ = 0;   // the first events, those that were followed
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
      ledger.pass(event);
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
