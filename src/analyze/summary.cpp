// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/summary.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "analyze/storage_effects.h"
#include "core/events/event_factory.h"
#include "trace/event_codec.h"
#include "trace/storage_rows.h"

namespace tidegauge {
namespace {

using trace::CodedEvent;
using trace::correct;
using trace::learn;
using trace::Position;
using trace::StorageEffects;

constexpr size_t kKeptSteps = 100'000;

/// Follows the storages, and keeps those that were alive at given moments.
class LiveSets {
 public:
  explicit LiveSets(std::vector<DevicePeak>& peaks) : peaks_(peaks), frozen_(peaks.size()) {}

  void apply(const CodedEvent& traced) {
    position_.advance(traced.event);
    apply_storage(traced);
    for (size_t i = 0; i < peaks_.size(); ++i) {
      if (peaks_[i].at.sequence == static_cast<uint64_t>(position_.sequence)) freeze(i);
    }
  }

  /// After the event that was applied last.
  const Instant& now() { return storages_.ledger().now(); }

  /// Fills the groups of the peaks.
  void group() {
    for (size_t i = 0; i < peaks_.size(); ++i) {
      std::map<std::tuple<Category, uint32_t, uint32_t, uint32_t>, StorageGroup> groups;
      for (const Life& life : frozen_[i]) {
        StorageGroup& group =
            groups[{life.category, life.module.value, life.op.value, life.tensor}];
        group.category = life.category;
        group.module = life.module;
        group.op = life.op;
        group.tensor = life.tensor;
        ++group.count;
        group.size_bytes += life.size_bytes;
      }
      for (const auto& [key, group] : groups) peaks_[i].groups.push_back(group);
      const auto order = [](const StorageGroup& group) {
        return std::tuple(-group.size_bytes, group.category, group.module.value, group.op.value,
                          group.tensor);
      };
      std::sort(peaks_[i].groups.begin(), peaks_[i].groups.end(),
                [&](const StorageGroup& a, const StorageGroup& b) { return order(a) < order(b); });
    }
  }

 private:
  struct Life {
    int64_t size_bytes = 0;
    Device device;
    Category category{};
    ModuleId module;
    OpId op;
    uint32_t tensor = 0;
    uint32_t frozen = 0;  // 1 + its index in the set of its device; 0: in none
  };

  void apply_storage(const CodedEvent& traced) {
    const auto effect = storages_.apply(traced.event);
    if (!effect) return;
    const Event& event = traced.event;
    if (!effect->after) {
      lives_.erase(event.storage);
      return;
    }
    Life& life = lives_[event.storage];
    if (!effect->before) {
      life.device = effect->device();
      life.module = position_.module_of(event.thread);
      life.op = event.op;
      life.tensor = traced.tensor;
    }
    life.size_bytes = effect->new_bytes();
    learn(life, traced, *effect);
    if (effect->is_since_birth && life.frozen != 0) correct_frozen(life);
  }

  void correct_frozen(const Life& life) {
    for (size_t i = 0; i < peaks_.size(); ++i) {
      if (peaks_[i].device == life.device) correct(frozen_[i][life.frozen - 1], life);
    }
  }

  void freeze(size_t i) {
    for (const Position::OpenCall& call : position_.open) {
      peaks_[i].running.push_back({call.module, call.phase});
    }
    for (auto& [id, life] : lives_) {
      if (life.device != peaks_[i].device || life.size_bytes == 0) continue;
      frozen_[i].push_back(life);
      life.frozen = static_cast<uint32_t>(frozen_[i].size());
    }
  }

  std::vector<DevicePeak>& peaks_;
  std::vector<std::vector<Life>> frozen_;  // as peaks_
  Position position_;
  StorageEffects storages_;
  std::unordered_map<StorageId, Life> lives_;
};

}  // namespace

TraceSummary summarize(EventSource& source, const Progress& progress) {
  const uint64_t event_count = source.event_count();
  const trace::Passes passes(progress, event_count, 2);

  TraceSummary summary;
  Ledger ledger({.kept_steps = kKeptSteps});
  bool was_in_optimizer = false;
  source.visit_events(1, event_count, [&](const Event& event, uint64_t sequence) {
    if (sequence == 1) summary.first_ns = event.time_ns;
    ledger.apply(events::without_modules(event));
    summary.storage_count += event.kind == EventKind::StorageBorn ? 1 : 0;
    const bool is_in_optimizer = ledger.now().in_optimizer_step;
    summary.optimizer_step_count += is_in_optimizer && !was_in_optimizer ? 1 : 0;
    was_in_optimizer = is_in_optimizer;
    passes.tell(sequence, 0);
  });
  summary.event_count = ledger.now().sequence;
  summary.last_ns = ledger.now().time_ns;
  summary.step_count = ledger.now().step;
  summary.end = ledger.current();
  summary.steps = ledger.step_peaks();
  summary.anomaly_count = static_cast<uint64_t>(ledger.anomalies().total());
  summary.first_anomaly = ledger.anomalies().first();
  for (const DeviceSplit& device : ledger.peak().devices) {
    summary.peaks.push_back(
        {.device = device.device, .at = device.at, .split = device.split, .running{}, .groups{}});
  }

  LiveSets sets(summary.peaks);
  source.visit_trace_events(1, event_count, [&](const CodedEvent& traced, uint64_t sequence) {
    sets.apply(traced);
    passes.tell(sequence, 1);
  });
  sets.group();
  return summary;
}

DevicePeak read_moment(EventSource& source, Device device, uint64_t sequence,
                       const Progress& progress) {
  std::vector<DevicePeak> moments(1);
  moments[0].device = device;
  moments[0].at.sequence = sequence;
  const trace::Passes passes(progress, source.event_count(), 1);
  LiveSets sets(moments);
  // To the end: labels since birth may come long after the moment.
  source.visit_trace_events(1, UINT64_MAX, [&](const CodedEvent& traced, uint64_t at) {
    sets.apply(traced);
    if (at == sequence) moments[0].at = sets.now();
    passes.tell(at, 0);
  });
  sets.group();
  for (const StorageGroup& group : moments[0].groups) {
    moments[0].split[group.category] += group.size_bytes;
  }
  return std::move(moments[0]);
}

}  // namespace tidegauge
