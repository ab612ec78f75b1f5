// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "allocator/alloc_config.h"
#include "allocator/device_trace.h"
#include "allocator/run_figures.h"
#include "allocator/trace_rewind.h"

namespace tidegauge {

struct RecordedRun {
  RunFigures figures;
  Layout final_layout;  ///< equals the snapshot's if the recording is complete
};

/// The figures of a recording, from the recorded addresses alone. It searches for no blocks, so the
/// figures do not depend on the simulator. Recordings do not say how much of a free block a request
/// took; this follows torch's rule for splitting. Throws FormatError, with the number of the event,
/// if an event contradicts earlier ones.
RecordedRun follow_recording(const RewoundTrace& trace, const AllocConfig& config);

}  // namespace tidegauge
