// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "core/events/category.h"
#include "core/events/device.h"
#include "core/events/ids.h"
#include "trace/progress.h"
#include "trace/reader.h"

namespace tidegauge {

/// What the run was doing.
enum class Activity : uint8_t { None, Forward, Backward, Recompute, Optimizer };

/// Holds from one moment up to the next context.
struct TimelineContext {
  uint32_t first = 0;  ///< moment
  uint32_t step = 0;   ///< 0: before the first
  Activity activity{};
  ModuleId module;  ///< the innermost that runs; 0 for none

  friend bool operator==(const TimelineContext&, const TimelineContext&) = default;
};

/// A storage while it had one size and one label: alive at the moments `first` to `end`, exclusive.
/// All labels since birth are applied.
struct TimelinePiece {
  uint32_t first = 0;
  uint32_t end = 0;
  int64_t size_bytes = 0;
  StorageId storage;
  ModuleId module;  ///< that ran when it was born; of parameters and buffers, the owner
  OpId op;
  uint32_t tensor = 0;  ///< of Reader::tensors; 0: unknown
  Category category{};

  friend bool operator==(const TimelinePiece&, const TimelinePiece&) = default;
};

/// All that one device held, at moments.
struct DeviceTimeline {
  Device device;
  std::vector<uint64_t> sequences;  ///< of the event after which each moment is; they grow
  std::vector<int64_t> times_ns;    ///< never smaller than the one before
  std::vector<TimelineContext> contexts;
  std::vector<TimelinePiece> pieces;  ///< by `first`
};

struct TimelineOptions {
  /// So many moments at most, all devices together, and some for each step.
  uint64_t max_moments = 1 << 20;
};

/// What a chart draws and a click asks for. The bytes of every moment, in all and by category, are
/// those of the pieces that hold it, to the byte what the Ledger had.
///
///   events     + + - + | + - + + + - - | -       |: a training step begins
///   moments    ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^ ^       if there is room for all changes
///                    ^ ^         ^     ^ ^       else the highest of so many changes each
///   pieces     [=====)   [===)                   this one no moment sees: [)
///                [===========)                   left out
///
/// So the peaks of the run and of each step are always among the moments, and less detail never
/// makes a figure wrong.
///
/// Two passes: which moments, then what is alive there. The Ledger decides what an event does.
/// Memory: the moments, and the pieces that they see. Throws as the Reader does.
std::vector<DeviceTimeline> read_timelines(Reader& reader, const TimelineOptions& options = {},
                                           const Progress& progress = {});

}  // namespace tidegauge
