// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/events/event_factory.h"
#include "core/ledger/ledger.h"

namespace tidegauge {

/// A precondition of a queued event, checked when the queue is drained. If it fails, the event is
/// dropped. So capture need not read the Ledger, which would apply all earlier events first.
///
///   condition          kind               holds if the storage is  extra event
///   IsAlive            relabelled, freed  alive
///   IsTemp             relabelled         alive and Temp
///   IsFreedByBackward  freed              alive                    before: relabels an Activation
///                                                                  as Saved Activation since birth
///   IsNew              born               not alive                instead, if it is Untracked:
///                                                                  StorageClaimed
///   HasSize            enter, exit        (always)                 before: ModuleSize
enum class Condition : uint8_t {
  None,
  IsAlive,
  IsTemp,
  IsFreedByBackward,  ///< a backward dropped the last reference to the storage
  IsNew,
  HasSize,  ///< `size_bytes` are the inputs (enter) or outputs (exit) of the call
};

/// The ModuleSize event that a ModuleEnter or ModuleExit with Condition::HasSize carries.
inline Event size_of_call(const Event& call) {
  return events::module_size({call.time_ns, call.thread, {}}, call.module,
                             call.kind == EventKind::ModuleEnter ? SizeOf::Inputs : SizeOf::Outputs,
                             call.size_bytes);
}

/// Applies an event to `ledger` if its condition holds. For conditions about the storage. Calls
/// `visit(event)` after each event that the Ledger has applied.
template <typename Visit>
void apply_if_met(const Event& event, Condition condition, Ledger& ledger, Visit&& visit) {
  StorageRecord* record = ledger.find_record(event.storage);
  if (record == nullptr) {
    if (condition != Condition::IsNew) return;
    ledger.apply(event);
    return visit(event);
  }
  const Category category = record->category;
  const events::Origin origin{event.time_ns, event.thread, {}};
  switch (condition) {
    case Condition::None:
    case Condition::HasSize:
      return;
    case Condition::IsTemp:
      if (category != Category::Temp) return;
      ledger.apply_relabelled(event, *record);
      return visit(event);
    case Condition::IsFreedByBackward:
      if (category == Category::Activation) {
        const Event saved = events::storage_relabelled(origin, event.storage,
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
      return visit(event);
    case Condition::IsNew:
      if (category != Category::Untracked) return;
      const Event claimed =
          events::storage_claimed(origin, event.storage, event.birth_facts, event.op);
      ledger.apply(claimed);
      return visit(claimed);
  }
}

}  // namespace tidegauge
