// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analyze/analysis.h"
#include "core/events/category.h"
#include "core/events/device.h"
#include "core/events/ids.h"
#include "trace/event_source.h"
#include "trace/progress.h"

namespace tidegauge {

/// The figures of one unit of sharded parameters.
struct UnitSummary {
  UnitId id;
  std::string name;
  std::map<Device, CategorySplit> at_peak;  ///< at the instant of each device's peak
  int64_t gather_count = 0;
  int64_t reduce_count = 0;
  int64_t longest_whole_ns = 0;  ///< until it was released, or the recording ended

  friend bool operator==(const UnitSummary&, const UnitSummary&) = default;
};

/// The units of a run, by id. Replays the events through the same Ledger and ShardedUnits that a
/// live tracker uses. Needs the first pass, or none if nothing was sharded.
class UnitAnalysis : public Analysis {
 public:
  UnitAnalysis();
  ~UnitAnalysis() override;

  /// Complete after `analyze`.
  const std::vector<UnitSummary>& units() const { return summaries_; }
  /// All changes of units, in order.
  const std::vector<TraceUnitEvent>& unit_events() const { return unit_events_; }

  Passes begin(EventSource& source, uint64_t event_count) override;
  void learn(const AppliedEvent& applied, Ledger& ledger) override;
  void end_first_pass(Ledger& ledger) override;

 private:
  struct State;
  void apply_unit_events(uint64_t last_sequence, Ledger& ledger);

  std::vector<TraceUnitEvent> unit_events_;
  std::vector<UnitSummary> summaries_;
  std::unique_ptr<State> state_;
};

/// Runs only a UnitAnalysis. Propagates exceptions from the source.
std::vector<UnitSummary> summarize_units(EventSource& source, const Progress& progress = {});

}  // namespace tidegauge
