// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "allocator/recorded_traces.h"
#include "core/events/device_events.h"
#include "core/ledger/ledger.h"

namespace tidegauge {
namespace {

/// A trace and the ledger that its events are applied to.
struct Fed {
  DeviceEvents trace;
  Ledger ledger;
  uint64_t last_id = 0;

  bool feed(const DeviceTraceEntry& entry) {
    const auto event = trace.consume(entry, StorageId(last_id + 1));
    if (!event) return false;
    if (event->kind == EventKind::StorageBorn) ++last_id;
    ledger.apply(*event);
    return true;
  }
  bool feed(TraceAction action, uint64_t address, int64_t size_bytes, uint64_t stream = 0) {
    return feed({action, cuda(0), address, size_bytes, stream});
  }
  int64_t live() const { return ledger.current().total_bytes(cuda(0)); }
};

TEST(DeviceEvents, BytesAreRoundedUpAndEndWhenTheFreeIsRequested) {
  Fed f;
  f.feed(TraceAction::Alloc, 4096, 1);
  f.feed(TraceAction::Alloc, 8192, 512);
  f.feed(TraceAction::Alloc, 16384, 513);
  EXPECT_EQ(f.live(), 512 + 512 + 1024);
  f.feed(TraceAction::FreeRequested, 16384, 513);
  EXPECT_EQ(f.live(), 1024);
  f.feed(TraceAction::FreeCompleted, 16384, 513);
  EXPECT_EQ(f.live(), 1024);
  EXPECT_EQ((*f.ledger.peak().find(cuda(0)))[Category::Untracked], 2048);
}

TEST(DeviceEvents, FreeOfMemoryFromBeforeTheTraceIsIgnored) {
  Fed f;
  EXPECT_FALSE(f.feed(TraceAction::FreeRequested, 4096, 512));
  f.feed(TraceAction::Alloc, 4096, 512);
  EXPECT_TRUE(f.feed(TraceAction::FreeRequested, 4096, 512));
  EXPECT_FALSE(f.feed(TraceAction::FreeRequested, 4096, 512));
  EXPECT_EQ(f.ledger.anomalies().total(), 0u);
}

TEST(DeviceEvents, SegmentsAreReservedNotLive) {
  Fed f;
  EXPECT_FALSE(f.feed(TraceAction::SegmentAlloc, 1 << 21, 2 << 20));
  EXPECT_FALSE(f.feed(TraceAction::SegmentMap, 1 << 22, 4 << 20));
  EXPECT_FALSE(f.feed(TraceAction::SegmentUnmap, 1 << 22, 2 << 20));
  EXPECT_EQ(f.trace.reserved_bytes(cuda(0)), 4 << 20);
  EXPECT_FALSE(f.feed(TraceAction::SegmentFree, 1 << 21, 2 << 20));
  EXPECT_EQ(f.trace.reserved_bytes(cuda(0)), 2 << 20);
  EXPECT_EQ(f.trace.reserved_bytes(cuda(1)), 0);
  EXPECT_EQ(f.live(), 0);
  EXPECT_FALSE(f.feed(TraceAction::OutOfMemory, 1000, 1 << 30));
  EXPECT_EQ(f.trace.out_of_memory_count(), 1);
}

TEST(DeviceEvents, StreamsAreNumberedInTheOrderOfTheirFirstMemory) {
  DeviceEvents trace;
  const auto stream_of = [&](uint64_t address, uint64_t stream) {
    return trace.consume({TraceAction::Alloc, cuda(0), address, 1, stream}, StorageId(address))
        ->stream;
  };
  EXPECT_EQ(stream_of(1, 0), StreamId{});
  EXPECT_EQ(stream_of(2, 0x7f00), StreamId(1));
  EXPECT_EQ(stream_of(3, 0x7f10), StreamId(2));
  EXPECT_EQ(stream_of(4, 0x7f00), StreamId(1));
}

TEST(DeviceEvents, LiveBytesOfRecordedTracesAreThoseOfAnIndependentCount) {
  const std::vector<std::string> names = recorded_trace_names();
  if (names.empty()) {
    ASSERT_FALSE(must_have_recorded_traces()) << no_recorded_traces();
    GTEST_SKIP() << no_recorded_traces();
  }
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    Fed f;
    LiveBlocks counted;
    const std::vector<DeviceTraceEntry> entries = entries_of(read_recorded_trace(name));
    ASSERT_GT(entries.size(), 50u);
    for (const DeviceTraceEntry& entry : entries) {
      counted.count(entry);
      f.feed(entry);
      ASSERT_EQ(f.live(), counted.live_bytes);
    }
    EXPECT_EQ(f.ledger.peak().total_bytes(cuda(0)), counted.peak_bytes);
    EXPECT_EQ(f.ledger.anomalies().total(), 0u) << f.ledger.anomalies().first();
  }
}

}  // namespace
}  // namespace tidegauge
