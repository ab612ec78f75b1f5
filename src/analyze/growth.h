// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "analyze/analysis.h"
#include "core/events/category.h"
#include "core/events/device.h"
#include "core/events/ids.h"
#include "trace/event_source.h"
#include "trace/progress.h"

namespace tidegauge {

/// Storages of one origin that the run keeps from step to step, and of which there are more and
/// more: a leak, or a list that the program still reads.
struct Growth {
  Device device;
  Category category{};  ///< of the youngest one
  ModuleId module;      ///< the module that was running at the birth, or the owner
  OpId op;
  uint32_t stack = 0;       ///< of the allocation, index into EventSource::stacks; 0: not recorded
  uint32_t tensor = 0;      ///< index into EventSource::tensors; 0: unknown, or shapes differ
  uint64_t count = 0;       ///< storages from earlier steps, alive after `last_step`
  int64_t size_bytes = 0;   ///< their bytes
  uint32_t since_step = 0;  ///< the first step after which there were more of them than before
  uint32_t last_step = 0;   ///< the last step after which there were more
  int64_t bytes_per_step = 0;  ///< the mean from `since_step` to `last_step`

  friend bool operator==(const Growth&, const Growth&) = default;
};

/// Finds what grows from step to step.
///
///   born in step      1    2    3    4        Storages of one device, module, op and stack are a
///                     #    #    #    #        group. After each step (its last optimizer step, or
///   after step 1      .                       the next step's begin if it has none) a group's
///   after step 2      x    .                  *kept* storages are those of earlier steps (x),
///   after step 3      x    x    .             so the outputs of the step itself (.) do not count.
///   after step 4      x    x    x    .
///   kept              0    1    2    3   ->   grows since step 2
///
/// A group grows if the least number of storages kept after all later steps rose at least three
/// times, and still did when the run ended: the last rise is at most twice as long ago as the last
/// rises are apart. So a cache that fills once, a list that is cleared, a queue of fixed length and
/// a tensor of varying size do not grow.
///
/// Needs the second pass. Memory: the live storages, the groups, and one entry per change of what
/// a group keeps.
class GrowthAnalysis : public Analysis {
 public:
  GrowthAnalysis();
  ~GrowthAnalysis() override;

  /// Complete after `analyze`; the fastest first.
  const std::vector<Growth>& growth() const { return growth_; }

  Passes begin(EventSource& source, uint64_t event_count) override;
  void collect(const AppliedEvent& applied, const trace::Position& position) override;
  void finish() override;

 private:
  class Groups;

  std::unique_ptr<Groups> groups_;
  std::vector<Growth> growth_;
};

/// Runs only a GrowthAnalysis. Propagates exceptions from the source.
std::vector<Growth> find_growth(EventSource& source, const Progress& progress = {});

}  // namespace tidegauge
