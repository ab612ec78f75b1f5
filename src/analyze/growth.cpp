// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/growth.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "analyze/live_storages.h"

namespace tidegauge {
namespace {

using trace::Position;

constexpr size_t kRises = 3;

/// The kept bytes of a group after a step.
struct Kept {
  uint32_t step = 0;
  int64_t size_bytes = 0;
  uint64_t count = 0;
};

/// From this step on, more storages are kept than after any step before.
struct Rise {
  uint32_t step = 0;
  int64_t before_bytes = 0;
  int64_t after_bytes = 0;
};

std::vector<Rise> find_rises(const std::vector<Kept>& curve) {
  std::vector<uint64_t> lowest(curve.size());
  for (size_t i = curve.size(); i-- > 0;) {
    lowest[i] = curve[i].count;
    if (i + 1 < curve.size()) lowest[i] = std::min(lowest[i], lowest[i + 1]);
  }
  std::vector<Rise> rises;
  Kept before;
  uint64_t lowest_before = 0;
  for (size_t i = 0; i < curve.size(); ++i) {
    if (lowest[i] > lowest_before) {
      rises.push_back({curve[i].step, before.size_bytes, curve[i].size_bytes});
    }
    before = curve[i];
    lowest_before = lowest[i];
  }
  return rises;
}

/// The rises up to the end of the run that follow each other regularly; none if it did not grow.
std::optional<std::pair<Rise, Rise>> find_growth_of(const std::vector<Kept>& curve,
                                                    uint32_t last_step) {
  const std::vector<Rise> rises = find_rises(curve);
  if (rises.size() < kRises) return {};
  const size_t last = rises.size() - 1;
  uint64_t apart = 0;
  for (size_t i = rises.size() - kRises; i < last; ++i) {
    apart = std::max<uint64_t>(apart, rises[i + 1].step - rises[i].step);
  }
  if (last_step - rises[last].step > 2 * apart) return {};
  size_t first = last;
  while (first > 0 && rises[first].step - rises[first - 1].step <= 2 * apart) --first;
  return std::pair(rises[first], rises[last]);
}

}  // namespace

class GrowthAnalysis::Groups {
 public:
  void collect(const AppliedEvent& applied, const Position& position) {
    if (applied.effect != nullptr) follow(applied, position);
    const EventKind kind = applied.event().kind;
    if (kind == EventKind::OptimizerStepEnd && !applied.now.in_optimizer_step) {
      end_step(applied.now.step);
    } else if (kind == EventKind::StepMarker && last_step_ + 1 < applied.now.step) {
      end_step(applied.now.step - 1);
    }
  }

  std::vector<Growth> take() {
    std::vector<Growth> found;
    for (const Group& group : groups_) {
      const auto rises = find_growth_of(group.curve, last_step_);
      if (!rises) continue;
      const auto& [first, last] = *rises;
      const int64_t steps = int64_t{last.step} - first.step + 1;
      found.push_back({.device = group.key.device,
                       .category = group.category,
                       .module = group.key.module,
                       .op = group.key.op,
                       .stack = group.key.stack,
                       .tensor = group.has_one_tensor ? group.tensor : 0,
                       .count = group.curve.back().count,
                       .size_bytes = group.curve.back().size_bytes,
                       .since_step = first.step,
                       .last_step = last.step,
                       .bytes_per_step = (last.after_bytes - first.before_bytes) / steps});
    }
    std::stable_sort(found.begin(), found.end(), [](const Growth& a, const Growth& b) {
      return a.bytes_per_step > b.bytes_per_step;
    });
    return found;
  }

 private:
  struct Key {
    Device device;
    ModuleId module;
    OpId op;
    uint32_t stack = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      uint64_t hash =
          (static_cast<uint64_t>(key.device.type) << 8) ^ static_cast<uint8_t>(key.device.index);
      for (const uint32_t part : {key.module.value, key.op.value, key.stack}) {
        hash = (hash ^ part) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
      }
      return hash;
    }
  };

  struct Group {
    Key key;
    Kept old;           // born before `step`
    Kept current;       // born in `step`
    uint32_t step = 0;  // the last one in which the group changed
    std::vector<Kept> curve;
    Category category{};
    uint32_t tensor = 0;
    bool has_one_tensor = true;
    bool is_changed = false;  // is in changed_

    void advance_to(uint32_t now) {
      if (step == now) return;
      old.size_bytes += current.size_bytes;
      old.count += current.count;
      current = {};
      step = now;
    }
  };
  struct GroupedStorage : LiveStorage {
    uint32_t group = 0;
    uint32_t born = 0;  // in this step

    Key key() const { return {device, module, op, stack}; }
  };

  void follow(const AppliedEvent& applied, const Position& position) {
    const uint32_t step = applied.now.step;
    std::optional<Key> before;
    if (applied.effect->before) {
      before = storages_[applied.place].key();
      add(storages_[applied.place], -1, step);
    }
    GroupedStorage& storage = storages_.apply(applied, position);
    if (!before) storage.born = step;
    if (!applied.effect->after) return;
    if (before != storage.key()) storage.group = intern(storage.key());
    add(storage, 1, step);
  }

  uint32_t intern(const Key& key) {
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<uint32_t>(groups_.size()));
    if (is_new) groups_.emplace_back().key = key;
    return found->second;
  }

  /// Adds a live storage to its group, or removes it. Storages of the time before the first step
  /// are none of a step.
  void add(const GroupedStorage& storage, int sign, uint32_t step) {
    if (storage.born == 0) return;
    Group& group = groups_[storage.group];
    group.advance_to(step);
    Kept& kept = storage.born == step ? group.current : group.old;
    kept.size_bytes += sign * storage.size_bytes;
    kept.count += static_cast<uint64_t>(int64_t{sign} * (storage.size_bytes != 0 ? 1 : 0));
    if (sign > 0) {
      if (group.tensor == 0) group.tensor = storage.tensor;
      group.has_one_tensor &= group.tensor == storage.tensor;
      group.category = storage.category;
    }
    if (!group.is_changed) {
      group.is_changed = true;
      changed_.push_back(storage.group);
    }
  }

  void end_step(uint32_t step) {
    if (step == 0) return;
    last_step_ = step;
    std::erase_if(changed_, [&](uint32_t number) {
      Group& group = groups_[number];
      group.advance_to(step);
      note(group, step);
      group.is_changed = group.current.count != 0;  // it will be old in the next step
      return !group.is_changed;
    });
  }

  static void note(Group& group, uint32_t step) {
    Kept now = group.old;
    now.step = step;
    if (!group.curve.empty() && group.curve.back().step == step) {
      group.curve.back() = now;  // the step has several optimizer steps
    } else if (now.count != (group.curve.empty() ? 0 : group.curve.back().count)) {
      group.curve.push_back(now);
    }
  }

  std::unordered_map<Key, uint32_t, KeyHash> numbers_;
  std::vector<Group> groups_;
  LiveStorages<GroupedStorage> storages_;
  std::vector<uint32_t> changed_;  // groups to look at when the step ends
  uint32_t last_step_ = 0;         // the last one that ended
};

GrowthAnalysis::GrowthAnalysis() = default;
GrowthAnalysis::~GrowthAnalysis() = default;

Analysis::Passes GrowthAnalysis::begin(EventSource& /*source*/, uint64_t /*event_count*/) {
  groups_ = std::make_unique<Groups>();
  return Passes::Second;
}

void GrowthAnalysis::collect(const AppliedEvent& applied, const Position& position) {
  groups_->collect(applied, position);
}

void GrowthAnalysis::finish() {
  growth_ = groups_->take();
  groups_.reset();
}

std::vector<Growth> find_growth(EventSource& source, const Progress& progress) {
  GrowthAnalysis analysis;
  analyze(source, std::array<Analysis*, 1>{&analysis}, progress);
  return analysis.growth();
}

}  // namespace tidegauge
