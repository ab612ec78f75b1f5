// SPDX-License-Identifier: BSD-3-Clause
#include "export/allocation_plan.h"

#include <unordered_map>

#include "allocator/request_stream.h"
#include "analyze/settled_labels.h"
#include "core/ledger/labeller.h"
#include "trace/event_codec.h"
#include "trace/storage_rows.h"

namespace tidegauge {
namespace {

class Planner {
 public:
  Planner(Device device, uint64_t peak_sequence) : device_(device), peak_(peak_sequence) {}

  void apply(const trace::CodedEvent& traced, const std::optional<StorageChange>& change) {
    position_.advance(traced.event);
    if (change && change->device == device_) apply_change(traced, *change);
    if (static_cast<uint64_t>(position_.sequence) == peak_) {
      allocations_at_peak_ = plan_.allocations.size();
    }
  }

  AllocationPlan take() { return std::move(plan_); }

 private:
  struct PlannedLife {
    PlannedAllocation facts;
    uint32_t allocation = 0;
  };

  void apply_change(const trace::CodedEvent& traced, const StorageChange& change) {
    const Event& event = traced.event;
    if (change.is_birth) {
      PlannedAllocation& facts = lives_[change.life].facts;
      facts.module = position_.module_of(event.thread);
      facts.op = event.op;
      facts.stream = event.stream.value;
      facts.tensor = traced.tensor;
      facts.stack = traced.stack;
    }
    PlannedLife& live = lives_[change.life];
    learn(live.facts, traced, change);
    if (change.old_bytes == change.new_bytes) {
      // A label that comes after the peak does not change the categories at the peak.
      const bool is_past = live.allocation < allocations_at_peak_;
      if (change.new_bytes > 0) {
        PlannedAllocation& planned = plan_.allocations[live.allocation];
        const Category category = is_past ? planned.category : live.facts.category;
        planned = live.facts;
        planned.category = category;
      }
    } else {
      if (change.old_bytes > 0) plan_.requests.push_back({event.time_ns, 0, live.allocation});
      if (change.new_bytes > 0) {
        live.allocation = static_cast<uint32_t>(plan_.allocations.size());
        plan_.allocations.push_back(live.facts);
        plan_.requests.push_back({event.time_ns, change.new_bytes, live.allocation});
      }
    }
    if (change.is_end) lives_.erase(change.life);
  }

  void learn(PlannedAllocation& facts, const trace::CodedEvent& traced,
             const StorageChange& change) const {
    const Event& event = traced.event;
    facts.category = change.new_category;
    if (event.kind == EventKind::StorageRelabelled) {
      if (event.module) facts.module = event.module;
      const uint16_t stream = side_stream(category_of(event.role));
      if (device_ == kCpu && stream != 0) facts.stream = stream;
    } else if (event.kind == EventKind::StorageClaimed) {
      if (event.op) facts.op = event.op;
      if (traced.tensor != 0) facts.tensor = traced.tensor;
      if (traced.stack != 0) facts.stack = traced.stack;
    }
  }

  Device device_;
  uint64_t peak_;
  size_t allocations_at_peak_ = 0;
  trace::Position position_;
  std::unordered_map<uint32_t, PlannedLife> lives_;
  AllocationPlan plan_;
};

}  // namespace

AllocationPlan plan_allocations(Reader& reader, Device device, const Progress& progress) {
  const trace::Passes passes(progress, reader.event_count(), 2);
  SettledLabels labels = learn_labels(reader, passes);

  uint64_t peak_sequence = 0;
  for (const DeviceSplit& peak : labels.ledger().peak().devices) {
    if (peak.device == device) peak_sequence = peak.at.sequence;
  }
  Planner planner(device, peak_sequence);
  SettledStorages storages(labels);
  reader.visit_trace_events(1, UINT64_MAX, [&](const trace::CodedEvent& traced, uint64_t sequence) {
    planner.apply(traced, storages.apply(traced.event));
    passes.report(sequence, 1);
  });
  return planner.take();
}

}  // namespace tidegauge
