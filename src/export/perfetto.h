// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "export/value_writer.h"
#include "trace/progress.h"
#include "trace/reader.h"

namespace tidegauge {

/// Traces as JSON for Perfetto and chrome://tracing, one process each.
///
///   counters   bytes by device and category, and their total, whenever they change; labels since
///              birth are in from the birth on, so a counter at the peak is what reports say
///   slices     calls of modules, steps of optimizers and collectives; in each thread they nest
///   instants   training steps, allocations that failed
///
/// Times never go back within a process. Written as it is read; memory: 8 bytes a birth, and what
/// is alive.
class PerfettoWriter {
 public:
  explicit PerfettoWriter(Sink sink);

  struct Source {
    int64_t process = 0;  ///< such as the rank
    std::string name;
    int64_t begin_ns = 0;  ///< what is 0 in the file, by the clock of the trace
  };
  /// Two passes over the events. Throws as the Reader does.
  void add(Reader& reader, const Source& source, const Progress& progress = {});
  /// After the last trace.
  void finish();

 private:
  JsonWriter out_;
};

}  // namespace tidegauge
