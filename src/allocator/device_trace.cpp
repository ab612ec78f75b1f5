// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/device_trace.h"

#include <algorithm>
#include <string>

#include "tidegauge/errors.h"

namespace tidegauge {

std::string_view to_string(TraceAction action) {
  static constexpr std::string_view kNames[kTraceActionCount] = {
      "alloc",        "free_requested", "free_completed", "segment_alloc",
      "segment_free", "segment_map",    "segment_unmap",  "oom",
      "snapshot"};
  const auto index = static_cast<size_t>(action);
  return index < kTraceActionCount ? kNames[index] : "unknown action";
}

void place_blocks(Layout& segments, std::vector<BlockState> active) {
  std::sort(active.begin(), active.end(),
            [](const BlockState& a, const BlockState& b) { return a.address < b.address; });
  auto next = active.cbegin();
  for (SegmentState& segment : segments) {
    const int64_t segment_end = segment.address + segment.size_bytes;
    int64_t end = segment.address;  // of the blocks so far
    const auto add_free_up_to = [&](int64_t address) {
      if (address > end) segment.blocks.push_back({end, address - end, 0, BlockUse::Free});
    };
    segment.blocks.clear();
    for (; next != active.cend() && next->address < segment_end; ++next) {
      if (next->address < end || next->size_bytes <= 0 ||
          next->size_bytes > segment_end - next->address) {
        break;
      }
      add_free_up_to(next->address);
      segment.blocks.push_back(*next);
      end = next->address + next->size_bytes;
    }
    add_free_up_to(segment_end);
  }
  if (next != active.cend()) {
    throw FormatError("the block of " + std::to_string(next->size_bytes) + " bytes at address " +
                      std::to_string(next->address) + " does not fit into its segment");
  }
}

}  // namespace tidegauge
