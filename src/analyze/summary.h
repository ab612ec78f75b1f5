// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ledger/ledger.h"
#include "trace/event_source.h"
#include "trace/progress.h"

namespace tidegauge {

/// Storages that were alive together and are alike.
struct StorageGroup {
  Category category{};
  ModuleId module;  ///< that ran when they were born; of parameters and buffers, the owner
  OpId op;
  uint32_t tensor = 0;  ///< of Reader::tensors; 0: unknown
  uint64_t count = 0;
  int64_t size_bytes = 0;  ///< together
};

struct RunningCall {
  ModuleId module;
  Phase phase{};
};

/// The highest moment of a device.
struct DevicePeak {
  Device device;
  Instant at;
  CategorySplit split;
  std::vector<RunningCall> running;  ///< the innermost last
  /// The largest first; by category they add up to `split`, to the byte.
  std::vector<StorageGroup> groups;
};

struct TraceSummary {
  uint64_t event_count = 0;
  uint64_t storage_count = 0;
  uint64_t optimizer_step_count = 0;
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  std::vector<DevicePeak> peaks;
  Snapshot end;                 ///< what was alive after the last event
  uint64_t step_count = 0;      ///< all there were
  std::vector<StepPeak> steps;  ///< the last 100,000 of them
  uint64_t anomaly_count = 0;
  std::string first_anomaly;
};

/// What a report says of a trace. Two passes over the events: the first finds the peaks, the second
/// who was alive there, since the labels of a moment may come long after it.
///
///   events ---> Ledger ----------> moment of the peak of each device
///     |                                 |
///     '-------> live storages --------->| frozen there; labels since birth still correct them
///
/// Memory: the live storages, and a number for each step. Throws as the Reader does.
TraceSummary summarize(EventSource& source, const Progress& progress = {});

/// The same of any moment of a device: after event `sequence`, what there was and who ran. One
/// pass.
DevicePeak read_moment(EventSource& source, Device device, uint64_t sequence,
                       const Progress& progress = {});

}  // namespace tidegauge
