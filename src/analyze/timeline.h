// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "core/events/category.h"
#include "core/events/device.h"
#include "core/events/ids.h"
#include "trace/event_source.h"
#include "trace/progress.h"

namespace tidegauge {

enum class Activity : uint8_t { None, Forward, Backward, Recompute, Optimizer };

/// The activity at the moments from `first` up to the next context.
struct TimelineContext {
  uint32_t first = 0;  ///< moment
  uint32_t step = 0;   ///< 0: before the first step
  Activity activity{};
  ModuleId module;  ///< the innermost running module; 0 for none

  friend bool operator==(const TimelineContext&, const TimelineContext&) = default;
};

/// A storage while it had one size and one label: alive at the moments `first` to `end`, exclusive.
/// Labels since birth are applied.
struct TimelinePiece {
  uint32_t first = 0;
  uint32_t end = 0;
  int64_t size_bytes = 0;
  StorageId storage;
  ModuleId module;  ///< the module that was running at the birth, or the owner
  OpId op;
  uint32_t tensor = 0;  ///< index into EventSource::tensors; 0: unknown
  uint32_t stack = 0;   ///< of the allocation, index into EventSource::stacks; 0: not recorded
  uint32_t born = 0;    ///< step of the birth; 0: before the first
  Category category{};

  friend bool operator==(const TimelinePiece&, const TimelinePiece&) = default;
};

/// The live storages of one device at chosen moments.
struct DeviceTimeline {
  Device device;
  std::vector<uint64_t> sequences;  ///< sequence number of the event before each moment; increasing
  std::vector<int64_t> times_ns;    ///< never decreasing
  std::vector<TimelineContext> contexts;
  std::vector<TimelinePiece> pieces;  ///< by `first`, then by storage

  friend bool operator==(const DeviceTimeline&, const DeviceTimeline&) = default;
};

struct TimelineOptions {
  /// At most this many moments for all devices together, plus some for each step.
  uint64_t max_moments = 1 << 20;
};

/// The data behind a chart of memory over time. The bytes of every moment, in total and by
/// category, are the sums of the pieces alive then, and equal those of the Ledger.
///
///   events     + + - + | + - + + + - - | -       |: a training step begins
///   moments    ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^       if there is room for all changes
///                    ^ ^         ^     ^ ^       else the highest of each group of changes
///   pieces     [=====)   [===)                   omitted, because no moment shows it: [)
///                [===========)
///
/// So the peaks of the run and of each step are always among the moments, and less detail never
/// makes a figure wrong. The first pass chooses the moments, the second one collects the pieces.
/// Memory: the moments, and the pieces alive at them.
class TimelineAnalysis : public Analysis {
 public:
  explicit TimelineAnalysis(const TimelineOptions& options = {});
  ~TimelineAnalysis() override;

  /// Complete after `analyze`.
  const std::vector<DeviceTimeline>& timelines() const { return timelines_; }
  std::vector<DeviceTimeline> take() { return std::move(timelines_); }

  Passes begin(EventSource& source, uint64_t event_count) override;
  void learn(const AppliedEvent& applied, Ledger& ledger) override;
  void end_first_pass(Ledger& ledger) override;
  void collect(const AppliedEvent& applied, const trace::Position& position) override;
  void finish() override;

 private:
  class Choice;
  class Filler;

  EventSource* source_ = nullptr;  // during `analyze`
  TimelineOptions options_;
  std::vector<DeviceTimeline> timelines_;
  std::unique_ptr<Choice> choice_;
  std::unique_ptr<Filler> filler_;
};

/// Runs only a TimelineAnalysis. Propagates exceptions from the source.
std::vector<DeviceTimeline> read_timelines(EventSource& source, const TimelineOptions& options = {},
                                           const Progress& progress = {});

}  // namespace tidegauge
