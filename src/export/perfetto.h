// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "export/value_writer.h"
#include "trace/progress.h"
#include "trace/reader.h"

namespace tidegauge {

/// Writes traces as JSON for Perfetto and chrome://tracing, each as one process.
///
///   counters   bytes by device and category, and their total, at every change; labels since birth
///              apply from the birth on, so the counters at the peak equal the report
///   slices     module calls, optimizer steps and collectives; they nest within each thread
///   instants   training steps, failed allocations
///
/// Times never decrease within a process. Writes while it reads; needs 8 bytes of memory per birth,
/// plus the live storages.
class PerfettoWriter {
 public:
  explicit PerfettoWriter(Sink sink);

  struct Source {
    int64_t process = 0;  ///< number of the process, e.g. the rank
    std::string name;
    int64_t begin_ns = 0;  ///< the time by the trace's clock that becomes 0 in the file
  };
  /// Makes two passes over the events. Propagates exceptions from the Reader.
  void add(Reader& reader, const Source& source, const Progress& progress = {});
  /// Call after the last trace.
  void finish();

 private:
  JsonWriter out_;
};

}  // namespace tidegauge
