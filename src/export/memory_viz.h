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

/// Writes traces as a memory snapshot in the format of torch.cuda.memory._dump_snapshot, which
/// torch's memory_viz and `tidegauge replay` open.
///
///   device_traces   for each trace, its storages as requests to a simulated caching allocator
///   segments        the segments of that allocator after the last request
///
/// The viewer starts from the segments and goes back event by event, so the file must contain every
/// event of every segment and block. The viewer colours by `category`; segments have the category
/// `unknown`, because the viewer requires one.
class MemoryVizWriter {
 public:
  /// `settings`: in the form of PYTORCH_CUDA_ALLOC_CONF. Throws UsageError with torch's message if
  /// they are invalid.
  MemoryVizWriter(ValueWriter& out, const std::string& settings);
  ~MemoryVizWriter();

  struct Source {
    Device device;               ///< the device whose storages are exported
    uint32_t number = 0;         ///< number of the device in the snapshot; ascending
    int64_t begin_ns = 0;        ///< begin of the run by the trace's clock; no event is earlier
    int64_t epoch_shift_ns = 0;  ///< offset from that clock to the time of day
  };
  /// Propagates exceptions from the Reader. Throws NotSupported for more memory than the viewer can
  /// address.
  void add(Reader& reader, const Source& source, const Progress& progress = {});
  /// Call after the last trace.
  void finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidegauge
