// SPDX-License-Identifier: BSD-3-Clause
// Reports traces of real CUDA allocators to a tracker, as the CUDA adapter would.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "allocator/recorded_traces.h"
#include "capture/hooks/unseen_changes.h"
#include "core/events/device_events.h"
#include "engine_tracking.h"

namespace tidegauge {
namespace {

/// An address range that this process does not use, because its own memory is in the same table.
constexpr uint64_t kElsewhere = uint64_t{1} << 60;

/// Frees all memory that is still alive, because the table outlives the test.
void free_all(const std::map<uint64_t, int64_t>& blocks) {
  for (const auto& [address, size_bytes] : blocks) {
    record_device({TraceAction::FreeRequested, cuda(0), address, size_bytes, 0});
  }
}

TEST(RecordedDevices, TrackerWithTheChannelHasTheLiveBytesOfEveryRecordedTrace) {
  const std::vector<std::string> names = recorded_trace_names();
  if (names.empty()) {
    ASSERT_FALSE(must_have_recorded_traces()) << no_recorded_traces();
    GTEST_SKIP() << no_recorded_traces();
  }
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    Tracking with({.has_channel = true});
    Tracking without;
    const auto live = [&] { return with.engine->current().total_bytes(cuda(0)); };
    LiveBlocks counted;
    for (DeviceTraceEntry entry : entries_of(read_recorded_trace(name))) {
      entry.address += kElsewhere;
      counted.count(entry);
      record_device(entry);
      ASSERT_EQ(live(), counted.live_bytes);
    }
    ASSERT_GT(counted.peak_bytes, 0);
    const Snapshot peak = with.engine->peak();
    EXPECT_EQ(peak.total_bytes(cuda(0)), counted.peak_bytes);
    // No tensor uses this memory.
    EXPECT_EQ((*peak.find(cuda(0)))[Category::Untracked], counted.peak_bytes);
    EXPECT_EQ(without.engine->peak().total_bytes(cuda(0)), 0);
    free_all(counted.blocks);
    EXPECT_EQ(live(), 0);
  }
}

}  // namespace
}  // namespace tidegauge
