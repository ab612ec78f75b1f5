// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/unit_summary.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/events/event_factory.h"
#include "core/ledger/ledger.h"
#include "core/ledger/sharded_units.h"

namespace tidegauge {
namespace {

/// Counts what ShardedUnits keeps only the last of.
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

std::vector<UnitSummary> summarize_units(EventSource& source, const Progress& progress) {
  const std::vector<TraceUnitEvent> unit_events = source.unit_events();
  if (unit_events.empty()) return {};
  ShardedUnits units;
  for (auto& [id, name] : source.units()) units.add(id, name);
  Ledger ledger;
  Gatherings gatherings;
  auto next = unit_events.begin();
  const auto apply_up_to = [&](uint64_t sequence) {
    for (; next != unit_events.end() && next->sequence <= sequence; ++next) {
      if (units.apply(next->event, ledger)) gatherings.apply(next->event);
      units.settle_if_due([&] { return ledger.peak(); });
    }
  };
  const trace::Passes passes(progress, source.event_count(), 1);
  apply_up_to(0);
  source.visit_events(1, UINT64_MAX, [&](const Event& event, uint64_t sequence) {
    ledger.apply(events::without_modules(event));
    units.apply(event, ledger);
    apply_up_to(sequence);
    passes.tell(sequence, 0);
  });
  apply_up_to(UINT64_MAX);

  std::vector<UnitSummary> summaries;
  for (UnitReport& report : units.read(ledger.peak())) {
    UnitSummary& summary = summaries.emplace_back();
    summary.id = report.id;
    summary.name = std::move(report.name);
    summary.at_peak = std::move(report.at_peak);
    summary.reduce_count = report.reduce_count;
    gatherings.write_to(summary, ledger.now().time_ns);
  }
  return summaries;
}

}  // namespace tidegauge
