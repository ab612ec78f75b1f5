// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/events/device.h"
#include "export/value_writer.h"
#include "trace/progress.h"
#include "trace/reader.h"

namespace tidegauge {

/// A memory snapshot as torch.cuda.memory._dump_snapshot writes it, made of traces: what torch's
/// memory_viz and `tidegauge replay` open.
///
///   device_traces   of each trace, the storages as requests to a simulated caching allocator
///   segments        what that allocator holds after the last one
///
/// The viewer goes back from the segments event by event, hence all that happens to a segment or
/// block is told. `category` is what it colours by; segments are `unknown`, a category that the
/// viewer of torch 2.13 cannot do without.
class MemoryVizWriter {
 public:
  /// `settings`: as of PYTORCH_CUDA_ALLOC_CONF. UsageError with torch's complaint if it has one.
  MemoryVizWriter(ValueWriter& out, const std::string& settings);
  ~MemoryVizWriter();

  struct Source {
    Device device;               ///< whose storages are taken
    uint32_t number = 0;         ///< of the device in the snapshot; ascending
    int64_t begin_ns = 0;        ///< of the run, by the clock of the trace; no event is earlier
    int64_t epoch_shift_ns = 0;  ///< from that clock to the time of day
  };
  /// Throws as the Reader does; NotSupported for more memory than the viewer has numbers for.
  void add(Reader& reader, const Source& source, const Progress& progress = {});
  /// After the last trace.
  void finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidegauge
