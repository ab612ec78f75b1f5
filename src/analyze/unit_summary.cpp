// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/unit_summary.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/ledger/ledger.h"
#include "core/ledger/sharded_units.h"

namespace tidegauge {
namespace {

/// Counts all gatherings of each unit; ShardedUnits keeps only the last ones.
class Gatherings {
 public:
  void apply(const UnitEvent& event) {
    Of& unit = units_[event.unit];
    last_ns_ = std::max(last_ns_, event.time_ns);
    switch (event.kind) {
      case UnitEventKind::GatherBegun:
        ++unit.count;
        return;
      case UnitEventKind::GatherFinished:
        unit.whole_since_ns = event.time_ns;
        return;
      case UnitEventKind::Released:
      case UnitEventKind::ReleasedToPostForwardShard:
        end(unit, event.time_ns);
        return;
      default:
        return;
    }
  }

  void write_to(UnitSummary& summary, int64_t end_ns) {
    Of& unit = units_[summary.id];
    end(unit, std::max(end_ns, last_ns_));
    summary.gather_count = unit.count;
    summary.longest_whole_ns = unit.longest_whole_ns;
  }

 private:
  struct Of {
    int64_t count = 0;
    int64_t longest_whole_ns = 0;
    std::optional<int64_t> whole_since_ns;
  };

  static void end(Of& unit, int64_t time_ns) {
    int64_t whole_ns = 0;
    // A damaged file may have any times.
    if (unit.whole_since_ns && !__builtin_sub_overflow(time_ns, *unit.whole_since_ns, &whole_ns)) {
      unit.longest_whole_ns = std::max(unit.longest_whole_ns, whole_ns);
    }
    unit.whole_since_ns.reset();
  }

  std::map<UnitId, Of> units_;
  int64_t last_ns_ = 0;
};

}  // namespace

struct UnitAnalysis::State {
  ShardedUnits units;
  Gatherings gatherings;
  size_t next = 0;  // index of the next unit event
};

UnitAnalysis::UnitAnalysis() = default;
UnitAnalysis::~UnitAnalysis() = default;

Analysis::Passes UnitAnalysis::begin(EventSource& source, uint64_t /*event_count*/) {
  unit_events_ = source.unit_events();
  if (unit_events_.empty()) return Passes::None;
  state_ = std::make_unique<State>();
  for (auto& [id, name] : source.units()) state_->units.add(id, name);
  Ledger empty;
  apply_unit_events(0, empty);
  return Passes::First;
}

void UnitAnalysis::learn(const AppliedEvent& applied, Ledger& ledger) {
  state_->units.apply(applied.event(), ledger);
  apply_unit_events(applied.now.sequence, ledger);
}

/// Applies the unit events up to the one after event `last_sequence`.
void UnitAnalysis::apply_unit_events(uint64_t last_sequence, Ledger& ledger) {
  State& state = *state_;
  for (; state.next < unit_events_.size() && unit_events_[state.next].sequence <= last_sequence;
       ++state.next) {
    const UnitEvent& event = unit_events_[state.next].event;
    if (state.units.apply(event, ledger)) state.gatherings.apply(event);
    state.units.settle_if_due([&] { return ledger.peak(); });
  }
}

void UnitAnalysis::end_first_pass(Ledger& ledger) {
  if (!state_) return;
  apply_unit_events(UINT64_MAX, ledger);
  for (UnitReport& report : state_->units.read(ledger.peak())) {
    UnitSummary& summary = summaries_.emplace_back();
    summary.id = report.id;
    summary.name = std::move(report.name);
    summary.at_peak = std::move(report.at_peak);
    summary.reduce_count = report.reduce_count;
    state_->gatherings.write_to(summary, ledger.now().time_ns);
  }
  state_.reset();
}

std::vector<UnitSummary> summarize_units(EventSource& source, const Progress& progress) {
  UnitAnalysis analysis;
  analyze(source, std::array<Analysis*, 1>{&analysis}, progress);
  return analysis.units();
}

}  // namespace tidegauge
