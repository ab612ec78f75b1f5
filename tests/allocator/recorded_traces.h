// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "allocator/trace_text.h"
#include "core/events/device_events.h"

namespace tidegauge {

/// Where recorded traces are: TIDEGAUGE_RECORDED_TRACES, by default ../shared/recorded-traces of
/// the repository. They are not part of it.
std::string recorded_traces_folder();

/// The names of all `*.txt.gz` there, sorted; empty if there is no such folder.
std::vector<std::string> recorded_trace_names();

/// Whether a test without them fails instead of being skipped: in CI.
bool must_have_recorded_traces();
std::string no_recorded_traces();

TextTrace read_recorded_trace(const std::string& name);

/// What the allocator of that device would have told a tracker that was there from the beginning:
/// the blocks and segments of then come first.
std::vector<DeviceTraceEntry> entries_of(const TextTrace& recorded);

/// What of such entries is alive, counted by nothing of ours: the oracle of who consumes them.
struct LiveBlocks {
  std::map<uint64_t, int64_t> blocks;  // by address, rounded up to 512 bytes
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;

  /// std::logic_error if the entry cannot be true.
  void count(const DeviceTraceEntry& entry);
};

}  // namespace tidegauge
