// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "analyze/storage_effects.h"
#include "core/ledger/ledger.h"
#include "trace/event_source.h"
#include "trace/progress.h"
#include "trace/storage_rows.h"

namespace tidegauge {

/// An event and its effect, worked out once for all analyses of a pass.
struct AppliedEvent {
  const trace::CodedEvent& traced;
  const Instant& now;                            ///< after the event
  const trace::StorageEffect* effect = nullptr;  ///< null: the event changes no storage
  /// Second pass, with an effect: the place of the storage among the live ones. A place is used
  /// again after the storage is freed, so that a plain vector can hold what is known of each.
  uint32_t place = 0;

  const Event& event() const { return traced.event; }
};

/// One question about a run. Several are answered together by `analyze`:
///
///   pass 1   events -> Ledger ------------> learn()    of every analysis that needs it
///                         '- peaks, steps -> end_first_pass()
///   pass 2   events -> RepeatedEffects ---> collect()
///                                           finish()
///
/// Labels of a moment may come long after it, and the highest moment is known at the end only. So
/// most analyses choose what to look at in the first pass, and collect it in the second one.
class Analysis {
 public:
  enum class Passes : uint8_t { None, First, Second, Both };

  virtual ~Analysis() = default;

  /// Before the first pass. Returns the passes in which the analysis wants to get the events.
  /// `event_count`: the events that are going to be read; a file may grow meanwhile.
  virtual Passes begin(EventSource& source, uint64_t event_count) = 0;
  /// The ledger has just applied the event. It knows nothing of modules.
  virtual void learn(const AppliedEvent& /*applied*/, Ledger& /*ledger*/) {}
  virtual void end_first_pass(Ledger& /*ledger*/) {}
  virtual void collect(const AppliedEvent& /*applied*/, const trace::Position& /*position*/) {}
  /// After the last pass.
  virtual void finish() {}
};

/// Answers all `analyses` in at most two passes over the events: one if no analysis needs the
/// second. Throws as the source does.
void analyze(EventSource& source, std::span<Analysis* const> analyses,
             const Progress& progress = {});

}  // namespace tidegauge
