// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/events/event.h"
#include "core/events/event_factory.h"
#include "core/ledger/ledger.h"
#include "core/modules/open_calls.h"

namespace tidegauge {

/// What must hold of the storage of an event when its turn comes; if it does not, there is no such
/// event. So who captures it need not ask, and need not wait for the events before it.
enum class Condition : uint8_t {
  None,
  IsAlive,
  IsTemp,
  /// StorageFreed: alive. An activation was saved for the backward, which lets go of it now.
  IsLetGoByBackward,
  /// StorageBorn: not alive. If the allocator has shown it, it is a StorageClaimed.
  IsNew,
  /// Nothing. ModuleEnter and ModuleExit: a ModuleSize of its bytes, of inputs or outputs, is
  /// before it.
  HasSize,
};

/// Events on their way to a Ledger, which gets them when somebody asks it something. Capture works
/// between the kernels of torch, where all of its code has to be fetched anew: so there an event is
/// only appended, and later many are applied in one go.
///
///   add -> [enter][born][enter][born][exit][freed] ... [iteration begins] -> apply_to -> Ledger
///                        `---- a call ----'
///
/// A call that begins and ends before the lists of statistics restart is passed over: nobody has
/// read of it, and now nobody can. The Ledger answers as if it had got each event at once.
class Backlog {
 public:
  void add(const Event& event, Condition condition = Condition::None) {
    add(event.kind, condition, [&](Event& place) { place = event; });
  }
  /// Likewise for an event of this kind that `fill(event)` writes where it stays: copies of what
  /// was just written, piece by piece, have the processor wait.
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
  /// It wants to be applied rather than grow.
  bool is_full() const { return events_.size() >= kMaxEvents; }

  /// Finds out which calls the events open and close, before anything but `add` is asked. Calls
  /// `visit(event, calls)` for each event of a storage, with the calls that are open at it.
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
  /// Whether some storage may get another label than that of its birth or of a gradient.
  bool has_labels() const { return has_labels_; }
  /// As the ledger will say.
  bool has_statistics(ModuleId module, const Ledger& ledger) const;

  /// Empties it; all of it was followed. Calls `visit(event)` after each that was applied.
  template <typename Visit>
  void apply_to(Ledger& ledger, Visit&& visit);

  size_t footprint_bytes() const { return events_.capacity() * sizeof(Captured); }

 private:
  /// What the event adds to the statistics of its module.
  enum class Entry : uint8_t { None, Some, WholeCall /* and the other end of the call is here */ };
  struct Captured : Event {
    Condition condition{};
    Entry entry{};
  };
  static_assert(sizeof(Captured) == sizeof(Event));
  static constexpr size_t kMaxEvents = 4096;
  static constexpr size_t kInLedger = SIZE_MAX;

  [[gnu::noinline, gnu::cold]] void grow() { events_.reserve(events_.capacity() * 2 + 64); }
  /// Which calls are open after this event.
  void follow_call(size_t position);

  std::vector<Captured> events_;
  size_t followed_ = 0;   // of them
  OpenCalls calls_;       // with the positions of their beginnings
  size_t restarted_ = 0;  // the statistics of what was before this position are forgotten
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
      apply(events::module_size(
          {event.time_ns, event.thread, {}}, event.module,
          event.kind == EventKind::ModuleEnter ? SizeOf::Inputs : SizeOf::Outputs,
          std::exchange(event.size_bytes, 0)));
      event.condition = Condition::None;
    }
    if (event.condition == Condition::None) {
      if (event.entry == Entry::WholeCall && i < restarted_) {
        ledger.pass(event);
      } else {
        apply(event);
      }
      continue;
    }
    StorageRecord* record = ledger.find_record(event.storage);
    if (record == nullptr) {
      if (event.condition == Condition::IsNew) apply(event);
      continue;
    }
    const Category category = record->category;
    switch (event.condition) {
      case Condition::None:
      case Condition::HasSize:
        break;
      case Condition::IsTemp:
        if (category != Category::Temp) break;
        ledger.apply_relabelled(event, *record);
        visit(event);
        break;
      case Condition::IsLetGoByBackward:
        if (category == Category::Activation) {
          const Event saved =
              events::storage_relabelled({event.time_ns, event.thread, {}}, event.storage,
                                         Role::IsSavedForBackward, Since::Birth);
          ledger.apply_relabelled(saved, *record);
          visit(saved);
        }
        [[fallthrough]];
      case Condition::IsAlive:
        if (event.kind == EventKind::StorageFreed) {
          ledger.apply_freed(event, *record);
        } else {
          ledger.apply_relabelled(event, *record);
        }
        visit(event);
        break;
      case Condition::IsNew:
        if (category == Category::Untracked) {
          apply(events::storage_claimed({event.time_ns, event.thread, {}}, event.storage,
                                        event.birth_facts, event.op));
        }
        break;
    }
  }
  events_.clear();
  followed_ = 0;
  calls_.mark_all(kInLedger);
  restarted_ = 0;
  has_labels_ = false;
}

}  // namespace tidegauge
