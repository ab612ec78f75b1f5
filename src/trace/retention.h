// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "trace/compaction.h"
#include "trace/keep.h"
#include "trace/writer.h"

namespace tidegauge::trace {

/// Drops old events of a trace that is being recorded. When the file has twice as much as is to be
/// kept, half of it is dropped (compaction.h). So the file has always at least what is to be kept,
/// and its size is bounded. Used by the Recorder's thread.
class Retention {
 public:
  explicit Retention(const Keep& keep) : keep_(keep) {}

  /// Does a slice of the work, if any is due. May replace the writer. If the disk is full or the
  /// copy fails for another reason, the trace stays whole, and the next try comes later.
  void advance(std::unique_ptr<TraceWriter>& writer);
  /// True if further slices wait.
  bool is_busy() const { return compaction_.has_value(); }
  /// Call before the trace is completed: what is not dropped yet stays.
  void stop() { compaction_.reset(); }

 private:
  bool is_due(const TraceWriter& writer);
  void replace(std::unique_ptr<TraceWriter>& writer);

  const Keep keep_;
  std::optional<Compaction> compaction_;
  bool has_begun_ = false;
  // When the last compaction began, or the recording.
  int64_t begin_ns_ = 0;
  int64_t begin_step_ = 0;
  int64_t next_try_ns_ = 0;
};

}  // namespace tidegauge::trace
