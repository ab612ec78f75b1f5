// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/sharded_units.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/ledger/labeller.h"

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
    {Role::IsAllReduceBuffer, Since::Now},        // AllReduceBuffer: until now the reduce-scatter's
    {Role::IsShardedGrad, Since::Now},            // ReducedGrad: until now a buffer
    {Role::IsShardedGrad, Since::Birth},          // ShardGrad
}};

constexpr std::array<std::string_view, 4> kUnitStates = {"sharded", "gathering", "unsharded",
                                                         "post-forward sharded"};

bool is_reduce_buffer(Category category) {
  return category == Category::ReduceScatter || category == Category::AllReduce;
}

std::map<Device, uint64_t> sequences_of(const Snapshot& snapshot) {
  std::map<Device, uint64_t> sequences;
  for (const DeviceSplit& entry : snapshot.devices) sequences[entry.device] = entry.at.sequence;
  return sequences;
}

}  // namespace

std::string_view to_string(UnitState state) { return kUnitStates[static_cast<size_t>(state)]; }

std::optional<ShardedUnits::Label> ShardedUnits::decide(UnitFact fact, Category category) {
  // Without a cast, the shard itself is the input of the all-gather.
  if (fact == UnitFact::GatherBuffer &&
      (category == Category::ShardedParam || category == Category::PostForwardShard)) {
    return std::nullopt;
  }
  Label label = kLabels[static_cast<size_t>(fact)];
  if (category_of(label.role) == category) return std::nullopt;
  if (category == Category::Untracked) label.since = Since::Birth;  // no earlier label to keep
  // The storage was not a buffer but an older gradient, to which the reduced gradient was added.
  if (fact == UnitFact::ReducedGrad && !is_reduce_buffer(category)) label.since = Since::Birth;
  // The same buffer serves several collectives, so its earlier label stays for the past.
  const bool is_buffer_now = fact == UnitFact::GatherBuffer || fact == UnitFact::ReduceBuffer;
  if (is_buffer_now && (category == Category::AllGather || is_reduce_buffer(category))) {
    label.since = Since::Now;
  }
  return label;
}

bool ShardedUnits::add(UnitId unit, std::string name) {
  const auto [entry, is_new] = units_.try_emplace(unit);
  if (is_new) order_.push_back(unit);
  if (!is_new && entry->second.name == name) return false;
  entry->second.name = std::move(name);
  return true;
}

ShardedUnits::Unit& ShardedUnits::find(UnitId unit) {
  if (!units_.contains(unit)) add(unit, {});
  return units_[unit];
}

void ShardedUnits::log(const OwnedStorage& owned, int64_t size_bytes, Category category,
                       const When& when) {
  if (size_bytes == 0) return;
  const auto peak = settled_peak_.find(owned.device);
  if (peak != settled_peak_.end() && when.sequence <= peak->second) {
    settled_at_peak_[{owned.unit, owned.device}][category] += size_bytes;
  }
  changes_.push_back({when, size_bytes, owned.unit, owned.device, category});
}

bool ShardedUnits::assign(UnitId unit, StorageId storage, const Ledger& ledger) {
  const auto known = ledger.find_storage(storage);
  if (!known) return false;
  find(unit);
  const auto [entry, is_new] = storages_.try_emplace(storage);
  OwnedStorage& owned = entry->second;
  if (!is_new && owned.unit == unit) return false;
  const uint64_t since = ledger.since_sequence(storage);
  const When when{since, since == ledger.now().sequence ? ledger.now().time_ns : 0};
  if (!is_new) log(owned, -owned.size_bytes, owned.category, when);
  owned = {unit, known->device, known->size_bytes, known->category, when};
  log(owned, owned.size_bytes, owned.category, when);
  return true;
}

void ShardedUnits::apply(const Event& event, const Ledger& ledger) {
  const auto entry = storages_.find(event.storage);
  if (entry == storages_.end()) return;
  OwnedStorage& owned = entry->second;
  const auto known = ledger.find_storage(event.storage);
  switch (event.kind) {
    case EventKind::StorageFreed:
      log(owned, -owned.size_bytes, owned.category, {ledger.now().sequence, ledger.now().time_ns});
      storages_.erase(entry);
      return;
    case EventKind::StorageRelabelled:
      if (known && event.since == Since::Birth) return storage_corrected(owned, known->category);
      [[fallthrough]];
    case EventKind::StorageResized:
      if (known) storage_changed(owned, known->size_bytes, known->category, ledger.now());
      return;
    default:
      return;
  }
}

void ShardedUnits::storage_changed(OwnedStorage& owned, int64_t size_bytes, Category category,
                                   const Instant& at) {
  const When when{at.sequence, at.time_ns};
  log(owned, -owned.size_bytes, owned.category, when);
  log(owned, size_bytes, category, when);
  owned.size_bytes = size_bytes;
  owned.category = category;
  owned.since = when;
}

void ShardedUnits::storage_corrected(OwnedStorage& owned, Category category) {
  if (owned.category == category) return;
  log(owned, -owned.size_bytes, owned.category, owned.since);
  log(owned, owned.size_bytes, category, owned.since);
  owned.category = category;
}

bool ShardedUnits::apply(const UnitEvent& event, const Ledger& ledger) {
  Instant now = ledger.now();
  now.time_ns = event.time_ns;
  switch (event.kind) {
    case UnitEventKind::StorageOwned:
      return assign(event.unit, event.storage, ledger);
    case UnitEventKind::GatherBegun:
      return begin_gather(find(event.unit), event.reason, now);
    case UnitEventKind::GatherFinished:
      return finish_gather(find(event.unit), now);
    case UnitEventKind::Released:
      return release(find(event.unit), UnitState::Sharded, now);
    case UnitEventKind::ReleasedToPostForwardShard:
      return release(find(event.unit), UnitState::PostForwardSharded, now);
    case UnitEventKind::Reduced:
      ++find(event.unit).reduce_count;
      return true;
  }
  return false;
}

bool ShardedUnits::begin_gather(Unit& unit, GatherReason reason, const Instant& now) {
  if (unit.state == UnitState::Gathering || unit.state == UnitState::Unsharded) return false;
  unit.state = UnitState::Gathering;
  unit.gatherings.push_back({reason, now, {}, {}});
  if (unit.gatherings.size() > kKeptGatherings) unit.gatherings.pop_front();
  return true;
}

bool ShardedUnits::finish_gather(Unit& unit, const Instant& now) {
  if (unit.state != UnitState::Gathering) return false;
  unit.state = UnitState::Unsharded;
  unit.gatherings.back().complete = now;
  return true;
}

bool ShardedUnits::release(Unit& unit, UnitState state, const Instant& now) {
  if (unit.state == state) return false;
  const bool was_gathered =
      unit.state == UnitState::Gathering || unit.state == UnitState::Unsharded;
  if (was_gathered && !unit.gatherings.empty()) unit.gatherings.back().released = now;
  unit.state = state;
  return true;
}

UnitState ShardedUnits::state(UnitId unit) const {
  const auto entry = units_.find(unit);
  return entry == units_.end() ? UnitState::Sharded : entry->second.state;
}

ShardedUnits::Sums ShardedUnits::sums_at(const std::map<Device, uint64_t>& sequences) const {
  Sums sums;
  const auto is_settled = [&](Device device) {
    const auto wanted = sequences.find(device);
    const auto settled = settled_peak_.find(device);
    return settled != settled_peak_.end() && wanted != sequences.end() &&
           settled->second == wanted->second;
  };
  for (const auto& [key, split] : settled_at_peak_) {
    if (is_settled(key.second)) sums[key] = split;
  }
  for (const auto& [key, split] : settled_) {
    if (!is_settled(key.second) && sequences.contains(key.second)) sums[key] = split;
  }
  for (const Change& change : changes_) {
    const auto wanted = sequences.find(change.device);
    if (wanted == sequences.end() || is_settled(change.device)) continue;
    if (change.when.sequence <= wanted->second) {
      sums[{change.unit, change.device}][change.category] += change.size_bytes;
    }
  }
  return sums;
}

void ShardedUnits::settle(const Snapshot& peak) {
  std::map<Device, uint64_t> sequences = sequences_of(peak);
  settled_at_peak_ = sums_at(sequences);
  settled_peak_ = std::move(sequences);
  const auto kept = changes_.end() - static_cast<ptrdiff_t>(kept_changes_);
  for (auto change = changes_.begin(); change != kept; ++change) {
    settled_[{change->unit, change->device}][change->category] += change->size_bytes;
  }
  changes_.erase(changes_.begin(), kept);
}

std::vector<UnitReport> ShardedUnits::read(const Snapshot& peak) const {
  Sums now = settled_;
  for (const Change& change : changes_) {
    now[{change.unit, change.device}][change.category] += change.size_bytes;
  }
  const Sums at_peak = sums_at(sequences_of(peak));
  std::vector<UnitReport> reports;
  for (const UnitId id : order_) {
    const Unit& unit = units_.at(id);
    UnitReport report;
    report.id = id;
    report.name = unit.name;
    report.state = unit.state;
    report.reduce_count = unit.reduce_count;
    report.gatherings.assign(unit.gatherings.begin(), unit.gatherings.end());
    for (const auto& [key, split] : now) {
      if (key.first == id && split != CategorySplit{}) report.now[key.second] = split;
    }
    for (const auto& [key, split] : at_peak) {
      const auto& [owner, device] = key;
      if (owner != id || split == CategorySplit{}) continue;
      report.at_peak[device] = split;
      report.peak_share[device] =
          static_cast<double>(split.total()) / static_cast<double>(peak.total_bytes(device));
    }
    reports.push_back(std::move(report));
  }
  append_timelines(reports);
  return reports;
}

void ShardedUnits::append_timelines(std::vector<UnitReport>& reports) const {
  std::map<UnitId, UnitReport*> by_id;
  for (UnitReport& report : reports) by_id[report.id] = &report;
  std::vector<const Change*> in_order;
  in_order.reserve(changes_.size());
  for (const Change& change : changes_) in_order.push_back(&change);
  std::stable_sort(in_order.begin(), in_order.end(), [](const Change* a, const Change* b) {
    return a->when.sequence < b->when.sequence;
  });
  Sums sums = settled_;
  int64_t time_ns = 0;
  for (size_t i = 0; i < in_order.size(); ++i) {
    const Change& change = *in_order[i];
    time_ns = std::max(time_ns, change.when.time_ns);
    const Key key{change.unit, change.device};
    sums[key][change.category] += change.size_bytes;
    const bool goes_on = i + 1 < in_order.size() &&
                         in_order[i + 1]->when.sequence == change.when.sequence &&
                         Key{in_order[i + 1]->unit, in_order[i + 1]->device} == key;
    if (goes_on) continue;  // the same event has more changes
    auto& timeline = by_id.at(change.unit)->timeline;
    const CategorySplit& split = sums[key];
    const auto last = std::find_if(timeline.rbegin(), timeline.rend(), [&](const UnitChange& each) {
      return each.device == change.device;
    });
    if (last != timeline.rend() && last->split == split) continue;
    timeline.push_back({time_ns, change.device, split});
  }
}

}  // namespace tidegauge
