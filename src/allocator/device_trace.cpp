// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/device_trace.h"

#include <algorithm>
#include <string>

#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

void check(const SegmentState& segment, const SegmentState* below) {
  const auto require = [&](bool is_true, const char* what) {
    if (!is_true) {
      throw FormatError("the segment at address " + std::to_string(segment.address) + " of " +
                        std::to_string(segment.size_bytes) + " bytes " + what);
    }
  };
  require(segment.address >= 0 && segment.size_bytes > 0 && segment.address < kAddressEnd &&
              segment.size_bytes <= kAddressEnd - segment.address,
          "has an invalid address or size");
  require(below == nullptr || below->address + below->size_bytes <= segment.address,
          "overlaps the previous one");
  const int64_t end = segment.address + segment.size_bytes;
  int64_t address = segment.address;
  bool was_free = false;
  for (const BlockState& block : segment.blocks) {
    require(block.address == address && block.size_bytes > 0 && block.size_bytes <= end - address,
            "has blocks with gaps or overlaps");
    require(block.requested_bytes >= 0, "has a block of negative size");
    require(block.requested_bytes <= block.size_bytes, "has a block smaller than its request");
    require(!was_free || block.use != BlockUse::Free, "has free blocks that were not merged");
    was_free = block.use == BlockUse::Free;
    address += block.size_bytes;
  }
  require(address == end, "is not filled by its blocks");
}

}  // namespace

std::string_view to_string(TraceAction action) {
  static constexpr std::string_view kNames[kTraceActionCount] = {
      "alloc",         "free_requested", "free_completed",
      "segment_alloc", "segment_free",   "segment_map",
      "segment_unmap", "snapshot",       "oom"};
  const auto index = static_cast<size_t>(action);
  return index < kTraceActionCount ? kNames[index] : "unknown action";
}

void check_layout(const Layout& layout) {
  for (size_t i = 0; i < layout.size(); ++i) check(layout[i], i > 0 ? &layout[i - 1] : nullptr);
}

void place_blocks(Layout& segments, std::vector<BlockState> active) {
  std::sort(active.begin(), active.end(),
            [](const BlockState& a, const BlockState& b) { return a.address < b.address; });
  auto next = active.cbegin();
  for (SegmentState& segment : segments) {
    const int64_t segment_end = segment.address + segment.size_bytes;
    int64_t end = segment.address;  // end of the blocks so far
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
