// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "allocator/alloc_config.h"
#include "allocator/device_trace.h"
#include "allocator/run_figures.h"
#include "allocator/trace_rewind.h"

namespace tidegauge {

struct RecordedRun {
  RunFigures figures;
  Layout final_layout;  ///< equals that of the snapshot, if the recording is whole
};

/// The figures of a recording, from the recorded addresses alone: no block is searched for, so
/// these do not depend on the simulator. What a recording does not say is how much of a free block
/// a request took; that is torch's rule for splitting. FormatError, with the number of the event,
/// if an event contradicts those before it.
RecordedRun follow_recording(const RewoundTrace& trace, const AllocConfig& config);

}  // namespace tidegauge
