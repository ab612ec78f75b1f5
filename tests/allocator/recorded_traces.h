// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "allocator/trace_text.h"
#include "core/events/device_events.h"

namespace tidegauge {

/// The folder of the recorded traces: TIDEGAUGE_RECORDED_TRACES, by default
/// ../shared/recorded-traces beside the repository. The traces are not part of the repository.
std::string recorded_traces_folder();

/// The names of all `*.txt.gz` files in it, sorted; empty if the folder does not exist.
std::vector<std::string> recorded_trace_names();

/// True in CI, where a test without recorded traces fails instead of being skipped.
bool must_have_recorded_traces();
std::string no_recorded_traces();

TextTrace read_recorded_trace(const std::string& name);

/// The entries that the device's allocator would have reported to a tracker from the beginning; the
/// initial blocks and segments come first.
std::vector<DeviceTraceEntry> entries_of(const TextTrace& recorded);

/// Counts the live bytes of such entries independently of tidegauge, as the expected value for
/// tests.
struct LiveBlocks {
  std::map<uint64_t, int64_t> blocks;  // by address, rounded up to 512 bytes
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;

  /// Throws std::logic_error if the entry is impossible.
  void count(const DeviceTraceEntry& entry);
};

}  // namespace tidegauge
