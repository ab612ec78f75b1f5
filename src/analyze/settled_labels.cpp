// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/settled_labels.h"

namespace tidegauge {
std::optional<StorageFollower::Followed> StorageFollower::apply(const Event& event) {
  const auto effect = effects_.apply(event);
  if (!effect) return std::nullopt;
  const auto& [before, after, is_label, is_since_birth] = *effect;
  if (!before) storages_[event.storage] = {.number = birth_count_++};
  NumberedStorage& storage = storages_[event.storage];
  if (is_label) ++storage.label_count;
  const StorageInfo& known = before ? *before : *after;
  Followed followed{.change = {.life = storage.number,
                               .device = known.device,
                               .old_bytes = effect->old_bytes(),
                               .new_bytes = effect->new_bytes(),
                               .old_category = known.category,
                               .new_category = after ? after->category : known.category,
                               .is_birth = !before,
                               .is_end = !after},
                    .label_count = storage.label_count,
                    .is_label = is_label,
                    .is_since_birth = is_since_birth};
  if (!after) storages_.erase(event.storage);
  return followed;
}

void SettledLabels::learn(const Event& event) {
  const auto followed = follower_.apply(event);
  if (!followed) return;
  if (followed->change.is_birth) {
    births_.push_back({.overruled_labels = 0, .category = followed->change.new_category});
    return;
  }
  if (followed->is_since_birth) {
    births_[followed->change.life] = {followed->label_count, followed->change.new_category};
  }
}

SettledLabels learn_labels(Reader& reader, const trace::Passes& passes) {
  SettledLabels labels;
  reader.visit_events(1, UINT64_MAX, [&](const Event& event, uint64_t sequence) {
    labels.learn(event);
    passes.report(sequence, 0);
  });
  return labels;
}

std::optional<StorageChange> SettledStorages::apply(const Event& event) {
  const auto followed = follower_.apply(event);
  if (!followed) return std::nullopt;
  StorageChange change = followed->change;
  const SettledLabels::Birth& settled = labels_.of(change.life);
  const auto [category, is_new] = categories_.try_emplace(change.life, settled.category);
  change.old_category = category->second;
  if (followed->is_label && followed->label_count > settled.overruled_labels) {
    category->second = change.new_category;
  }
  change.new_category = category->second;
  if (change.is_end) categories_.erase(category);
  return change;
}

}  // namespace tidegauge
