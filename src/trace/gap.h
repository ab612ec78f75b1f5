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

/// Whether recording may go on here after a gap: a step, or an iteration, begins, or the optimizer
/// has ended one.
bool begins_step(const Event& event);

/// Events that could not be written, folded into what they come to in the end.
///
///   lost     a born | b born | a freed | b is a gradient | old c freed
///   net()             b born            b is a gradient   c freed
///
/// So after a gap the replayed bytes, labels and open calls are right again, and so are the labels
/// of the time before it; only what was in between (peaks, snapshots of modules) is missing.
/// Of units it keeps who owns what is alive, and the last gathering of each.
/// Memory: O(live storages), however long it is.
class Gap {
 public:
  void add(const CodedEvent& traced);
  void add(const UnitEvent& event);
  /// A later gap, which could not be written either.
  void add(const Gap& later);

  bool is_empty() const { return lost_events_ == 0 && owners_.empty() && gatherings_.empty(); }
  uint64_t lost_events() const { return lost_events_; }
  uint64_t lost_steps() const { return lost_steps_; }
  int64_t begin_ns() const { return begin_ns_; }
  int64_t end_ns() const { return end_ns_; }

  std::vector<CodedEvent> net() const;
  /// What comes after them.
  std::vector<UnitEvent> net_of_units() const;

 private:
  struct Change {
    uint64_t order = 0;
    std::vector<CodedEvent> ended;  ///< of the life before: its last labels since birth, its free
    std::optional<CodedEvent> born;
    std::optional<CodedEvent> resized;
    std::optional<CodedEvent> claimed;
    std::optional<CodedEvent> since_birth;  ///< the last label that corrects the past ...
    std::optional<CodedEvent> from_now;     ///< ... and one after it
  };
  /// Optimizer steps or collectives: ends without a begin, then begins without an end.
  struct Nesting {
    std::vector<CodedEvent> ends;
    std::vector<CodedEvent> begins;
  };
  void add_storage(const CodedEvent& traced);
  void add_call(const CodedEvent& traced);
  static void nest(Nesting& nesting, const CodedEvent& traced, bool begins);

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
  uint64_t steps_to_tell_ = 0;
  std::map<StorageId, UnitEvent> owners_;
  std::map<UnitId, std::vector<UnitEvent>> gatherings_;  // from the last release on
};

}  // namespace tidegauge::trace
