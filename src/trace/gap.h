// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/events/unit_event.h"
#include "core/modules/open_calls.h"
#include "trace/event_codec.h"

namespace tidegauge::trace {

/// True if recording may resume here after a gap: a step or an iteration begins, or an optimizer
/// step ends.
bool begins_step(const Event& event);

/// Events that could not be written, combined into their net effect.
///
///   lost     a born | b born | a freed | b is a gradient | old c freed
///   net()             b born            b is a gradient   c freed
///
/// So after a gap, a replay has the correct bytes, labels and open calls again, including labels
/// that change the time before the gap. Only peaks and module snapshots within the gap are missing.
/// For units, the gap keeps the owners of live storages and the last gathering of each unit.
/// Memory: O(live storages), for a gap of any length.
class Gap {
 public:
  /// `joins_steps`: the net effect has one marker for all steps (format 2.0), not one for each.
  explicit Gap(bool joins_steps = false) : joins_steps_(joins_steps) {}

  void add(const CodedEvent& traced);
  void add(const UnitEvent& event);
  /// Adds the next gap, if this one could not be written either.
  void add(const Gap& later);

  bool is_empty() const { return lost_events_ == 0 && owners_.empty() && gatherings_.empty(); }
  uint64_t lost_events() const { return lost_events_; }
  uint64_t lost_steps() const { return lost_steps_; }
  int64_t begin_ns() const { return begin_ns_; }
  int64_t end_ns() const { return end_ns_; }

  std::vector<CodedEvent> net() const;
  /// Unit events that follow the net events.
  std::vector<UnitEvent> net_of_units() const;

 private:
  struct Change {
    uint64_t order = 0;
    std::vector<CodedEvent>
        ended;  ///< the last label since birth and the free of an earlier storage with this id
    std::optional<CodedEvent> born;
    std::optional<CodedEvent> resized;
    std::optional<CodedEvent> claimed;
    std::optional<CodedEvent> since_birth;  ///< the last label since birth
    std::optional<CodedEvent> from_now;     ///< a label from now on that came after it
  };
  /// Optimizer steps or collectives: first the ends without a begin, then the begins without an
  /// end.
  struct Nesting {
    std::vector<CodedEvent> ends;
    std::vector<CodedEvent> begins;
  };
  void add_storage(const CodedEvent& traced);
  void add_call(const CodedEvent& traced);
  void append_steps(std::vector<CodedEvent>& events) const;
  static void nest(Nesting& nesting, const CodedEvent& traced, bool begins);

  bool joins_steps_;
  uint64_t lost_events_ = 0;
  uint64_t lost_steps_ = 0;
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = 0;
  std::unordered_map<StorageId, Change> storages_;
  uint64_t next_order_ = 0;
  OpenCalls calls_;  // mark: key in `enters_`
  std::map<size_t, CodedEvent> enters_;
  std::vector<CodedEvent> exits_;  // of calls that began before the gap
  Nesting optimizer_steps_, collectives_;
  std::map<std::pair<ModuleId, SizeOf>, CodedEvent> sizes_;
  std::map<ModuleId, CodedEvent> gone_;
  std::vector<CodedEvent> failures_;
  std::optional<CodedEvent> step_, statistics_reset_, iteration_, peak_reset_;
  uint64_t net_steps_ = 0;
  std::map<StorageId, UnitEvent> owners_;
  std::map<UnitId, std::vector<UnitEvent>> gatherings_;  // from the last release on
};

}  // namespace tidegauge::trace
