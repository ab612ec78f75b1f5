// SPDX-License-Identifier: BSD-3-Clause
// Traces of real CUDA allocators, told to a tracker as the adapter of capture/cuda tells them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "allocator/recorded_traces.h"
#include "core/device_events.h"
#include "memory_tracking.h"

namespace tidegauge {
namespace {

/// Where no memory of this process is: its addresses are in the same table.
constexpr uint64_t kElsewhere = uint64_t{1} << 60;

/// Tells the end of all that is still alive: the table outlives the test.
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
    const auto live = [&] { return with.memory->current().total_bytes(cuda(0)); };
    DeviceEvents alone;  // the same entries in a ledger of their own
    Ledger replayed;
    uint64_t last_id = 0;
    std::map<uint64_t, int64_t> blocks;  // and counted by hand
    int64_t live_bytes = 0;
    int64_t peak_bytes = 0;
    for (DeviceTraceEntry entry : entries_of(read_recorded_trace(name))) {
      entry.address += kElsewhere;
      if (entry.action == TraceAction::Alloc) {
        const int64_t rounded = entry.size_bytes + (-entry.size_bytes & 511);
        ASSERT_TRUE(blocks.emplace(entry.address, rounded).second);
        live_bytes += rounded;
      } else if (entry.action == TraceAction::FreeRequested) {
        const auto found = blocks.find(entry.address);
        ASSERT_NE(found, blocks.end());
        live_bytes -= found->second;
        blocks.erase(found);
      }
      peak_bytes = std::max(peak_bytes, live_bytes);
      if (const auto event = alone.consume(entry, StorageId(last_id + 1))) {
        if (event->kind == EventKind::StorageBorn) ++last_id;
        replayed.apply(*event);
      }
      record_device(entry);
      ASSERT_EQ(live(), live_bytes);
    }
    ASSERT_GT(peak_bytes, 0);
    const Snapshot peak = with.memory->peak();
    EXPECT_EQ(peak.total_bytes(cuda(0)), peak_bytes);
    EXPECT_EQ((*peak.find(cuda(0)))[Category::Untracked], peak_bytes);  // no tensor has shown it
    EXPECT_EQ(replayed.current().total_bytes(cuda(0)), live_bytes);
    EXPECT_EQ(replayed.peak().total_bytes(cuda(0)), peak_bytes);
    EXPECT_EQ(without.memory->peak().total_bytes(cuda(0)), 0);
    free_all(blocks);
    EXPECT_EQ(live(), 0);
  }
}

}  // namespace
}  // namespace tidegauge
