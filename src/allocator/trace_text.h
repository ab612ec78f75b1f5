// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <istream>

#include "allocator/device_trace.h"

namespace tidegauge {

/// A trace of one device as text, with the state before it and the figures after it.
struct TextTrace {
  DeviceTrace trace;
  Layout initial_layout;
  int64_t final_reserved_bytes = 0;
  int64_t final_active_bytes = 0;
};

/// One record per line, numbers in decimal:
///
///   # comment
///   S address size stream small|large         a segment at the start
///   B address size requested                  an active block at the start
///   a address size stream                     alloc; r free_requested, c free_completed,
///                                             A segment_alloc, F segment_free, M segment_map,
///                                             U segment_unmap, O oom, X snapshot
///   E reserved active                         bytes at the end
///   s address size stream small|large         a segment at the end
///   b address size requested state            a block of it; the state as in snapshots
///
/// Throws FormatError, with the number of the line, for anything else.
TextTrace read_text_trace(std::istream& input);

}  // namespace tidegauge
