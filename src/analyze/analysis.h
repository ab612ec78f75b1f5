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

/// An event and its effect, computed once for all analyses of a pass.
struct AppliedEvent {
  const trace::CodedEvent& traced;
  const Instant& now;                            ///< after the event
  const trace::StorageEffect* effect = nullptr;  ///< null: the event changes no storage
  /// In the second pass, if there is an effect: a small number for the storage. Numbers are reused
  /// after a free, so a vector that they index can hold the data of all live storages.
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
/// Labels of a moment may come long after it, and the highest moment is known only at the end. So
/// most analyses choose moments in the first pass and collect their data in the second one.
class Analysis {
 public:
  enum class Passes : uint8_t { None, First, Second, Both };

  virtual ~Analysis() = default;

  /// Called before the first pass. Returns the passes that the analysis needs. `event_count`: the
  /// number of events that will be read; a file may grow meanwhile.
  virtual Passes begin(EventSource& source, uint64_t event_count) = 0;
  /// Called after the ledger applied the event. The ledger has no data about modules.
  virtual void learn(const AppliedEvent& /*applied*/, Ledger& /*ledger*/) {}
  virtual void end_first_pass(Ledger& /*ledger*/) {}
  virtual void collect(const AppliedEvent& /*applied*/, const trace::Position& /*position*/) {}
  /// Called after the last pass.
  virtual void finish() {}
};

/// Answers all `analyses` in at most two passes over the events: one if no analysis needs the
/// second. Propagates exceptions from the source.
void analyze(EventSource& source, std::span<Analysis* const> analyses,
             const Progress& progress = {});

}  // namespace tidegauge
