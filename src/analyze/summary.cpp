// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "analyze/live_storages.h"
#include "analyze/unit_owners.h"

namespace tidegauge {
namespace {

using trace::Position;

/// Tracks the live storages, and copies ("freezes") those that are alive at the moments of `peaks`.
class LiveSets {
 public:
  LiveSets(std::vector<DevicePeak>& peaks, UnitOwners owners)
      : peaks_(peaks), frozen_(peaks.size()), storages_(std::move(owners)) {}

  void collect(const AppliedEvent& applied, const Position& position) {
    if (applied.effect != nullptr) follow(applied, position);
    for (size_t i = 0; i < peaks_.size(); ++i) {
      if (peaks_[i].at.sequence == applied.now.sequence) freeze(i, position);
    }
  }

  /// Fills the groups of the peaks.
  void group() {
    for (size_t i = 0; i < peaks_.size(); ++i) {
      std::map<std::tuple<Category, uint32_t, uint32_t, uint32_t, uint32_t>, StorageGroup> groups;
      for (const FrozenStorage& storage : frozen_[i]) {
        StorageGroup& group = groups[{storage.category, storage.module.value, storage.op.value,
                                      storage.tensor, storage.stack}];
        group.category = storage.category;
        group.module = storage.module;
        group.op = storage.op;
        group.tensor = storage.tensor;
        group.stack = storage.stack;
        ++group.count;
        group.size_bytes += storage.size_bytes;
      }
      for (const auto& [key, group] : groups) peaks_[i].groups.push_back(group);
      const auto order = [](const StorageGroup& group) {
        return std::tuple(-group.size_bytes, group.category, group.module.value, group.op.value,
                          group.tensor, group.stack);
      };
      std::sort(peaks_[i].groups.begin(), peaks_[i].groups.end(),
                [&](const StorageGroup& a, const StorageGroup& b) { return order(a) < order(b); });
    }
  }

 private:
  struct FrozenStorage : LiveStorage {
    uint32_t frozen = 0;  // 1 + its index in frozen_ of its device; 0: not frozen
  };

  void follow(const AppliedEvent& applied, const Position& position) {
    const FrozenStorage& storage = storages_.apply(applied, position);
    const trace::StorageEffect& effect = *applied.effect;
    if (effect.after && effect.is_since_birth && storage.frozen != 0) correct_frozen(storage);
  }

  void correct_frozen(const FrozenStorage& storage) {
    for (size_t i = 0; i < peaks_.size(); ++i) {
      if (peaks_[i].device == storage.device)
        trace::correct(frozen_[i][storage.frozen - 1], storage);
    }
  }

  void freeze(size_t i, const Position& position) {
    for (const Position::OpenCall& call : position.open) {
      peaks_[i].running.push_back({call.module, call.phase});
    }
    for (FrozenStorage& storage : storages_) {
      if (storage.device != peaks_[i].device || storage.size_bytes == 0) continue;
      frozen_[i].push_back(storage);
      storage.frozen = static_cast<uint32_t>(frozen_[i].size());
    }
  }

  std::vector<DevicePeak>& peaks_;
  std::vector<std::vector<FrozenStorage>> frozen_;  // in the order of peaks_
  LiveStorages<FrozenStorage> storages_;
};

/// Finds the storages alive at one moment of a device.
class MomentAnalysis : public Analysis {
 public:
  MomentAnalysis(Device device, uint64_t sequence) : moments_(1) {
    moments_[0].device = device;
    moments_[0].at.sequence = sequence;
  }

  DevicePeak take() { return std::move(moments_[0]); }

  Passes begin(EventSource& source, uint64_t /*event_count*/) override {
    sets_.emplace(moments_, UnitOwners(source));
    return Passes::Second;
  }
  void collect(const AppliedEvent& applied, const Position& position) override {
    sets_->collect(applied, position);
    if (applied.now.sequence == moments_[0].at.sequence) moments_[0].at = applied.now;
  }
  void finish() override {
    sets_->group();
    for (const StorageGroup& group : moments_[0].groups) {
      moments_[0].split[group.category] += group.size_bytes;
    }
  }

 private:
  std::vector<DevicePeak> moments_;
  std::optional<LiveSets> sets_;
};

}  // namespace

class SummaryAnalysis::Sets : public LiveSets {
  using LiveSets::LiveSets;
};

SummaryAnalysis::SummaryAnalysis() = default;
SummaryAnalysis::~SummaryAnalysis() = default;

Analysis::Passes SummaryAnalysis::begin(EventSource& source, uint64_t /*event_count*/) {
  source_ = &source;
  return Passes::Both;
}

void SummaryAnalysis::learn(const AppliedEvent& applied, Ledger& /*ledger*/) {
  if (applied.now.sequence == 1) summary_.first_ns = applied.now.time_ns;
  summary_.storage_count += applied.event().kind == EventKind::StorageBorn ? 1 : 0;
  const bool is_in_optimizer = applied.now.in_optimizer_step;
  summary_.optimizer_step_count += is_in_optimizer && !was_in_optimizer_ ? 1 : 0;
  was_in_optimizer_ = is_in_optimizer;
}

void SummaryAnalysis::end_first_pass(Ledger& ledger) {
  summary_.event_count = ledger.now().sequence;
  summary_.last_ns = ledger.now().time_ns;
  summary_.step_count = ledger.now().step;
  summary_.end = ledger.current();
  summary_.steps = ledger.step_peaks();
  summary_.anomaly_count = ledger.anomalies().total();
  summary_.first_anomaly = ledger.anomalies().first();
  for (const DeviceSplit& device : ledger.peak().devices) {
    summary_.peaks.push_back(
        {.device = device.device, .at = device.at, .split = device.split, .running{}, .groups{}});
  }
  sets_ = std::make_unique<Sets>(summary_.peaks, UnitOwners(*source_));
}

void SummaryAnalysis::collect(const AppliedEvent& applied, const Position& position) {
  sets_->collect(applied, position);
}

void SummaryAnalysis::finish() {
  sets_->group();
  sets_.reset();
}

TraceSummary summarize(EventSource& source, const Progress& progress) {
  SummaryAnalysis analysis;
  analyze(source, std::array<Analysis*, 1>{&analysis}, progress);
  return analysis.take();
}

DevicePeak read_moment(EventSource& source, Device device, uint64_t sequence,
                       const Progress& progress) {
  MomentAnalysis analysis(device, sequence);
  analyze(source, std::array<Analysis*, 1>{&analysis}, progress);
  return analysis.take();
}

}  // namespace tidegauge
