// SPDX-License-Identifier: BSD-3-Clause
#include "sharded/sharded_units.h"

#include <array>
#include <utility>

#include "core/labeller.h"

namespace tidegauge {
namespace {

// Indexed by UnitFact.
constexpr std::array<ShardedUnits::Label, kUnitFactCount> kLabels = {{
    {Role::IsShardedParam, Since::Birth},         // Shard
    {Role::IsAllGatherBuffer, Since::Birth},      // GatherBuffer
    {Role::IsUnshardedParam, Since::Birth},       // Unsharded
    {Role::IsPostForwardShard, Since::Birth},     // PostForwardShard
    {Role::IsUnshardedGrad, Since::Birth},        // UnshardedGrad
    {Role::IsReduceScatterBuffer, Since::Birth},  // ReduceBuffer
    {Role::IsAllReduceBuffer, Since::Now},        // AllReduceBuffer: until now a reduce-scatter's
    {Role::IsShardedGrad, Since::Now},            // ReducedGrad: until now a buffer
    {Role::IsShardedGrad, Since::Birth},          // ShardGrad
}};

constexpr std::array<std::string_view, 5> kReasons = {"forward", "backward", "prefetch", "user",
                                                      "recompute"};
constexpr std::array<std::string_view, 4> kStates = {"sharded", "gathering", "unsharded",
                                                     "post-forward sharded"};

bool is_buffer(Category category) {
  return category == Category::ReduceScatter || category == Category::AllReduce;
}

}  // namespace

std::string_view to_string(GatherReason reason) { return kReasons[static_cast<size_t>(reason)]; }
std::string_view to_string(UnitState state) { return kStates[static_cast<size_t>(state)]; }

std::optional<ShardedUnits::Label> ShardedUnits::decide(UnitFact fact, Category category) {
  // A shard that needs no cast is itself the input of the all-gather.
  if (fact == UnitFact::GatherBuffer &&
      (category == Category::ShardedParam || category == Category::PostForwardShard)) {
    return std::nullopt;
  }
  Label label = kLabels[static_cast<size_t>(fact)];
  if (category_of(label.role) == category) return std::nullopt;
  if (category == Category::Untracked) label.since = Since::Birth;  // nobody has named it before
  // It was no buffer: an older gradient that the reduced one was added to.
  if (fact == UnitFact::ReducedGrad && !is_buffer(category)) label.since = Since::Birth;
  return label;
}

void ShardedUnits::add(UnitId unit, std::string name) {
  if (!units_.contains(unit)) order_.push_back(unit);
  units_[unit].name = std::move(name);
}

ShardedUnits::Unit& ShardedUnits::find(UnitId unit) {
  if (!units_.contains(unit)) add(unit, {});
  return units_[unit];
}

void ShardedUnits::log(const Owned& owned, int64_t size_bytes, Category category,
                       uint64_t sequence) {
  if (size_bytes == 0) return;
  const auto peak = settled_peak_.find(owned.device);
  if (peak != settled_peak_.end() && sequence <= peak->second) {
    settled_at_peak_[{owned.unit, owned.device}][category] += size_bytes;
  }
  changes_.push_back({sequence, size_bytes, owned.unit, owned.device, category});
}

void ShardedUnits::assign(UnitId unit, StorageId storage, const StorageInfo& info, uint64_t since) {
  find(unit);
  const auto [entry, is_new] = storages_.try_emplace(storage);
  Owned& owned = entry->second;
  if (!is_new && owned.unit == unit) return;
  if (!is_new) log(owned, -owned.size_bytes, owned.category, since);
  owned = {unit, info.device, info.size_bytes, info.category, since};
  log(owned, owned.size_bytes, owned.category, since);
}

void ShardedUnits::storage_changed(StorageId storage, int64_t size_bytes, Category category,
                                   uint64_t sequence) {
  const auto entry = storages_.find(storage);
  if (entry == storages_.end()) return;
  Owned& owned = entry->second;
  log(owned, -owned.size_bytes, owned.category, sequence);
  log(owned, size_bytes, category, sequence);
  owned.size_bytes = size_bytes;
  owned.category = category;
  owned.since = sequence;
}

void ShardedUnits::storage_corrected(StorageId storage, Category category) {
  const auto entry = storages_.find(storage);
  if (entry == storages_.end() || entry->second.category == category) return;
  Owned& owned = entry->second;
  log(owned, -owned.size_bytes, owned.category, owned.since);
  log(owned, owned.size_bytes, category, owned.since);
  owned.category = category;
}

void ShardedUnits::storage_freed(StorageId storage, uint64_t sequence) {
  const auto entry = storages_.find(storage);
  if (entry == storages_.end()) return;
  log(entry->second, -entry->second.size_bytes, entry->second.category, sequence);
  storages_.erase(entry);
}

void ShardedUnits::begin_gather(UnitId id, GatherReason reason, const Instant& now) {
  Unit& unit = find(id);
  if (unit.state == UnitState::Gathering || unit.state == UnitState::Unsharded) return;
  unit.state = UnitState::Gathering;
  unit.gatherings.push_back({reason, now, {}, {}});
  if (unit.gatherings.size() > kKeptGatherings) unit.gatherings.pop_front();
}

void ShardedUnits::finish_gather(UnitId id, const Instant& now) {
  Unit& unit = find(id);
  if (unit.state != UnitState::Gathering) return;
  unit.state = UnitState::Unsharded;
  unit.gatherings.back().complete = now;
}

void ShardedUnits::release(UnitId id, bool keeps_post_forward_shard, const Instant& now) {
  Unit& unit = find(id);
  const bool was_gathered =
      unit.state == UnitState::Gathering || unit.state == UnitState::Unsharded;
  if (was_gathered && !unit.gatherings.empty()) unit.gatherings.back().released = now;
  unit.state = keeps_post_forward_shard ? UnitState::PostForwardSharded : UnitState::Sharded;
}

void ShardedUnits::reduce(UnitId unit) { ++find(unit).reduce_count; }

UnitState ShardedUnits::state(UnitId unit) const {
  const auto entry = units_.find(unit);
  return entry == units_.end() ? UnitState::Sharded : entry->second.state;
}

ShardedUnits::Sums ShardedUnits::sums_at(const std::map<Device, uint64_t>& sequences) const {
  Sums sums;
  const auto is_settled = [&](Device device) {
    const auto meant = sequences.find(device);
    const auto settled = settled_peak_.find(device);
    return settled != settled_peak_.end() && meant != sequences.end() &&
           settled->second == meant->second;
  };
  for (const auto& [key, split] : settled_at_peak_) {
    if (is_settled(key.second)) sums[key] = split;
  }
  for (const auto& [key, split] : settled_) {
    if (!is_settled(key.second) && sequences.contains(key.second)) sums[key] = split;
  }
  for (const Change& change : changes_) {
    const auto meant = sequences.find(change.device);
    if (meant == sequences.end() || is_settled(change.device)) continue;
    if (change.sequence <= meant->second) {
      sums[{change.unit, change.device}][change.category] += change.size_bytes;
    }
  }
  return sums;
}

namespace {

std::map<Device, uint64_t> sequences_of(const Snapshot& snapshot) {
  std::map<Device, uint64_t> sequences;
  for (const DeviceSplit& entry : snapshot.devices) sequences[entry.device] = entry.at.sequence;
  return sequences;
}

}  // namespace

void ShardedUnits::settle(const Snapshot& peak) {
  std::map<Device, uint64_t> sequences = sequences_of(peak);
  settled_at_peak_ = sums_at(sequences);
  for (const Change& change : changes_) {
    settled_[{change.unit, change.device}][change.category] += change.size_bytes;
  }
  changes_.clear();
  settled_peak_ = std::move(sequences);
}

std::vector<UnitReport> ShardedUnits::read(const Snapshot& peak) {
  settle(peak);
  std::vector<UnitReport> reports;
  for (const UnitId id : order_) {
    const Unit& unit = units_[id];
    UnitReport report{id, unit.name, unit.state, {}, {}, {}, unit.reduce_count};
    report.gatherings.assign(unit.gatherings.begin(), unit.gatherings.end());
    for (const auto& [key, split] : settled_) {
      if (key.first == id && split != CategorySplit{}) report.now[key.second] = split;
    }
    for (const auto& [key, split] : settled_at_peak_) {
      if (key.first == id && split != CategorySplit{}) report.at_peak[key.second] = split;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace tidegauge
