// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "core/ledger/ledger.h"
#include "trace/event_source.h"
#include "trace/progress.h"

namespace tidegauge {

/// Equal storages that were alive at the same time.
struct StorageGroup {
  Category category{};
  ModuleId module;  ///< the module that was running at the birth, or the owner
  OpId op;
  uint32_t tensor = 0;  ///< index into EventSource::tensors; 0: unknown
  uint32_t stack = 0;   ///< of the allocation, index into EventSource::stacks; 0: not recorded
  uint64_t count = 0;
  int64_t size_bytes = 0;  ///< bytes of the whole group

  friend bool operator==(const StorageGroup&, const StorageGroup&) = default;
};

struct RunningCall {
  ModuleId module;
  Phase phase{};

  friend bool operator==(const RunningCall&, const RunningCall&) = default;
};

/// The highest moment of a device.
struct DevicePeak {
  Device device;
  Instant at;
  CategorySplit split;
  std::vector<RunningCall> running;  ///< innermost last
  /// Largest group first. By category, they add up to `split` exactly.
  std::vector<StorageGroup> groups;

  friend bool operator==(const DevicePeak&, const DevicePeak&) = default;
};

struct TraceSummary {
  uint64_t event_count = 0;
  uint64_t storage_count = 0;
  uint64_t optimizer_step_count = 0;
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  std::vector<DevicePeak> peaks;
  Snapshot end;                 ///< after the last event
  uint64_t step_count = 0;      ///< number of steps in the whole run
  std::vector<StepPeak> steps;  ///< the last 100,000 steps
  uint64_t anomaly_count = 0;
  std::string first_anomaly;

  friend bool operator==(const TraceSummary&, const TraceSummary&) = default;
};

/// Finds the peaks in the first pass and the storages that were alive at them in the second pass,
/// because the labels of a moment may come long after it.
///
///   events ---> Ledger ----------> moment of the peak of each device
///     |                                 |
///     '-------> live storages --------->| copied there; labels since birth still correct them
///
/// Memory: the live storages, and one number per step.
class SummaryAnalysis : public Analysis {
 public:
  SummaryAnalysis();
  ~SummaryAnalysis() override;

  /// Complete after `analyze`.
  const TraceSummary& summary() const { return summary_; }
  TraceSummary take() { return std::move(summary_); }

  Passes begin(EventSource& source, uint64_t event_count) override;
  void learn(const AppliedEvent& applied, Ledger& ledger) override;
  void end_first_pass(Ledger& ledger) override;
  void collect(const AppliedEvent& applied, const trace::Position& position) override;
  void finish() override;

 private:
  class Sets;

  EventSource* source_ = nullptr;  // during `analyze`
  TraceSummary summary_;
  bool was_in_optimizer_ = false;
  std::unique_ptr<Sets> sets_;
};

/// Runs only a SummaryAnalysis. Propagates exceptions from the source.
TraceSummary summarize(EventSource& source, const Progress& progress = {});

/// The same for any moment of a device: the storages that were alive after event `sequence`, and
/// the calls that were open.
DevicePeak read_moment(EventSource& source, Device device, uint64_t sequence,
                       const Progress& progress = {});

}  // namespace tidegauge
