// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tidegauge/category.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// Bytes by category.
struct CategoryBytes {
  std::array<int64_t, kCategoryCount> bytes{};

  int64_t operator[](Category category) const { return bytes[static_cast<size_t>(category)]; }
  int64_t total_bytes() const {
    int64_t sum = 0;
    for (const int64_t each : bytes) sum += each;
    return sum;
  }
};

/// Storages that were alive at a peak and have the same properties.
struct TensorGroup {
  Category category{};
  std::string module;  ///< the module that was running at the birth, or the owner; may be empty
  std::string op;      ///< "aten::mm"; empty if unknown
  std::string dtype;   ///< "float32"; empty if unknown
  std::string shape;   ///< "[2, 3]"; empty if unknown
  std::string stack;   ///< frames of the allocation, innermost first, one per line; may be empty
  int64_t count = 0;
  int64_t size_bytes = 0;  ///< bytes of the whole group
};

/// A module call that was running.
struct RunningModule {
  std::string name;
  std::string phase;  ///< "forward", "backward" or "recompute"
};

/// A unit of sharded parameters (an FSDP2 param group) at the peak of a device.
struct UnitAtPeak {
  std::string name;  ///< empty for the root
  CategoryBytes bytes;
  int64_t gather_count = 0;      ///< in the whole run
  int64_t reduce_count = 0;      ///< in the whole run
  int64_t longest_whole_ns = 0;  ///< the longest time from an all-gather to the release
};

/// The highest moment of a device.
struct PeakSummary {
  std::string device;  ///< "cuda:0"
  CategoryBytes bytes;
  uint64_t sequence = 0;  ///< sequence number of the last event before it
  int64_t after_ns = 0;   ///< time since the start of the recording
  int64_t step = 0;       ///< 0: before the first step
  bool in_optimizer_step = false;
  std::vector<RunningModule> running;  ///< innermost last
  std::vector<TensorGroup> groups;     ///< largest first; they add up to `bytes`
  std::vector<UnitAtPeak> units;       ///< largest first; none if nothing was sharded
};

/// The highest moment of a device within one training step.
struct StepSummary {
  int64_t step = 0;  ///< counted from 1
  std::string device;
  CategoryBytes bytes;
  uint64_t sequence = 0;
};

struct RunSummary {
  bool is_complete = false;  ///< false: the run was killed or is still running
  uint64_t event_count = 0;
  uint64_t lost_events = 0;    ///< events that could not be written
  uint64_t anomaly_count = 0;  ///< events that contradict others and were ignored
  int64_t step_count = 0;
  int64_t optimizer_step_count = 0;
  int64_t duration_ns = 0;
  std::vector<PeakSummary> peaks;  ///< one per device, largest first; meta last
  std::vector<StepSummary> steps;  ///< the last 100,000 steps
};

/// The bytes of a device at chosen moments, which include the peaks of the run and of each step.
struct MemoryTimeline {
  struct Moment {
    uint64_t sequence = 0;  ///< sequence number of the last event before it
    int64_t after_ns = 0;   ///< time since the start of the recording
    int64_t step = 0;
    CategoryBytes bytes;
  };
  std::string device;
  std::vector<Moment> moments;
};

struct ReadOptions {
  /// The maximum number of moments in all timelines together. Each step adds some.
  uint64_t max_moments = 1 << 14;
};

/// A trace file (from `MemTracker` or `tidegauge run`), read like `tidegauge report` does: the file
/// is opened once, and the first query about its events reads them in two passes.
///
///   TraceFile trace("run.tide");
///   for (const PeakSummary& peak : trace.summary().peaks) {
///     std::cout << peak.device << ": " << peak.bytes.total_bytes() << " bytes\n";
///   }
///
/// Every function may throw IoError, or FormatError if the file is damaged, newer or not a trace.
/// Use it from one thread at a time.
class TIDEGAUGE_API TraceFile {
 public:
  explicit TraceFile(const std::string& path, const ReadOptions& options = {});
  ~TraceFile();
  TraceFile(TraceFile&&) noexcept;
  TraceFile& operator=(TraceFile&&) noexcept;

  /// Facts of the run by name: command, host, rank, world_size, torch_version, started, ...
  std::map<std::string, std::string> facts();
  const RunSummary& summary();
  const std::vector<MemoryTimeline>& timelines();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidegauge
