// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/storage_effects.h"

#include "core/events/event_factory.h"

namespace tidegauge::trace {

std::optional<StorageEffect> StorageEffects::apply(const Event& event) {
  if (!is_of_storage(event.kind)) {
    ledger_.apply(events::without_modules(event));
    return std::nullopt;
  }
  const uint64_t refused = ledger_.anomalies().total();
  StorageEffect effect;
  effect.before = ledger_.find_storage(event.storage);
  ledger_.apply(event);
  if (ledger_.anomalies().total() != refused) return std::nullopt;
  effect.after = ledger_.find_storage(event.storage);
  const bool is_claimed = event.kind == EventKind::StorageClaimed;
  effect.is_label = is_claimed || event.kind == EventKind::StorageRelabelled;
  effect.is_since_birth = is_claimed || (effect.is_label && event.since == Since::Birth);
  return effect;
}

}  // namespace tidegauge::trace
