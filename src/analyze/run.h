// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/growth.h"
#include "analyze/summary.h"
#include "analyze/timeline.h"
#include "analyze/unit_lanes.h"
#include "analyze/unit_summary.h"
#include "trace/event_source.h"
#include "trace/progress.h"

namespace tidegauge {

/// Questions about a run besides its summary and its units.
struct RunQuestions {
  std::optional<TimelineOptions> timeline = {};
  std::span<Analysis* const> others = {};  ///< analyses that join the passes; none is kept
};

/// One run and all figures that reports need, from at most two passes over its events.
///
///   source (a trace file, or events in memory) -> summary(), units(), timelines(), ...
///
/// Used by one thread at a time.
class Run {
 public:
  /// Computes all answers. Propagates exceptions from the source.
  explicit Run(std::shared_ptr<EventSource> source, const RunQuestions& questions = {},
               const Progress& progress = {});

  EventSource& source() const { return *source_; }
  const TraceSummary& summary() const { return summary_.summary(); }
  const std::vector<UnitSummary>& units() const { return units_.units(); }
  /// What grows from step to step, the fastest first.
  const std::vector<Growth>& growth() const { return growth_.growth(); }
  std::vector<LaneChange> unit_lanes() const { return make_unit_lanes(units_.unit_events()); }
  /// Empty unless requested.
  const std::vector<DeviceTimeline>& timelines() const { return timeline_.timelines(); }

 private:
  std::shared_ptr<EventSource> source_;
  SummaryAnalysis summary_;
  UnitAnalysis units_;
  GrowthAnalysis growth_;
  TimelineAnalysis timeline_;
};

}  // namespace tidegauge
