// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/device_trace.h"
#include "core/ledger.h"

namespace tidegauge {
namespace {

/// A trace and the ledger that its events are applied to.
struct Fed {
  DeviceTrace trace;
  Ledger ledger;
  uint64_t last_id = 0;

  bool feed(const DeviceTraceEntry& entry) {
    const auto event = trace.consume(entry, StorageId(last_id + 1));
    if (!event) return false;
    if (event->kind == EventKind::StorageBorn) ++last_id;
    ledger.apply(*event);
    return true;
  }
  bool feed(DeviceAction action, uint64_t address, int64_t size_bytes, uint64_t stream = 0) {
    return feed({action, cuda(0), address, size_bytes, stream});
  }
  int64_t live() const { return ledger.current().total_bytes(cuda(0)); }
};

TEST(DeviceTrace, BytesAreRoundedUpAndGoWhenTheirFreeIsRequested) {
  Fed f;
  f.feed(DeviceAction::Alloc, 4096, 1);
  f.feed(DeviceAction::Alloc, 8192, 512);
  f.feed(DeviceAction::Alloc, 16384, 513);
  EXPECT_EQ(f.live(), 512 + 512 + 1024);
  f.feed(DeviceAction::FreeRequested, 16384, 513);
  EXPECT_EQ(f.live(), 1024);
  f.feed(DeviceAction::FreeCompleted, 16384, 513);
  EXPECT_EQ(f.live(), 1024);
  EXPECT_EQ((*f.ledger.peak().find(cuda(0)))[Category::Untracked], 2048);
}

TEST(DeviceTrace, FreeOfWhatWasThereBeforeMeansNothing) {
  Fed f;
  EXPECT_FALSE(f.feed(DeviceAction::FreeRequested, 4096, 512));
  f.feed(DeviceAction::Alloc, 4096, 512);
  EXPECT_TRUE(f.feed(DeviceAction::FreeRequested, 4096, 512));
  EXPECT_FALSE(f.feed(DeviceAction::FreeRequested, 4096, 512));
  EXPECT_EQ(f.ledger.anomalies().total(), 0u);
}

TEST(DeviceTrace, SegmentsAreReservedNotLive) {
  Fed f;
  EXPECT_FALSE(f.feed(DeviceAction::SegmentAlloc, 1 << 21, 2 << 20));
  EXPECT_FALSE(f.feed(DeviceAction::SegmentMap, 1 << 22, 4 << 20));
  EXPECT_FALSE(f.feed(DeviceAction::SegmentUnmap, 1 << 22, 2 << 20));
  EXPECT_EQ(f.trace.reserved_bytes(cuda(0)), 4 << 20);
  EXPECT_FALSE(f.feed(DeviceAction::SegmentFree, 1 << 21, 2 << 20));
  EXPECT_EQ(f.trace.reserved_bytes(cuda(0)), 2 << 20);
  EXPECT_EQ(f.trace.reserved_bytes(cuda(1)), 0);
  EXPECT_EQ(f.live(), 0);
  EXPECT_FALSE(f.feed(DeviceAction::OutOfMemory, 1000, 1 << 30));
  EXPECT_EQ(f.trace.out_of_memory_count(), 1);
}

TEST(DeviceTrace, StreamsAreNumberedInTheOrderOfTheirFirstMemory) {
  DeviceTrace trace;
  const auto stream_of = [&](uint64_t address, uint64_t stream) {
    return trace.consume({DeviceAction::Alloc, cuda(0), address, 1, stream}, StorageId(address))
        ->stream;
  };
  EXPECT_EQ(stream_of(1, 0), StreamId{});
  EXPECT_EQ(stream_of(2, 0x7f00), StreamId(1));
  EXPECT_EQ(stream_of(3, 0x7f10), StreamId(2));
  EXPECT_EQ(stream_of(4, 0x7f00), StreamId(1));
}

// ---- recorded traces; their format is told where they are kept ----

std::filesystem::path recorded_traces() {
  if (const char* given = std::getenv("TIDEGAUGE_RECORDED_TRACES")) return given;
  return std::filesystem::path(__FILE__).parent_path() / "../../../shared/recorded-traces";
}

/// The lines of one file as entries. Blocks that were there at its beginning come as allocations.
std::vector<DeviceTraceEntry> read_trace(const std::filesystem::path& path) {
  const std::map<char, DeviceAction> actions = {
      {'B', DeviceAction::Alloc},         {'S', DeviceAction::SegmentAlloc},
      {'a', DeviceAction::Alloc},         {'r', DeviceAction::FreeRequested},
      {'c', DeviceAction::FreeCompleted}, {'A', DeviceAction::SegmentAlloc},
      {'F', DeviceAction::SegmentFree},   {'M', DeviceAction::SegmentMap},
      {'U', DeviceAction::SegmentUnmap},  {'O', DeviceAction::OutOfMemory},
      {'X', DeviceAction::Snapshot},
  };
  std::vector<DeviceTraceEntry> entries;
  // NOLINTNEXTLINE(bugprone-command-processor): the path is the tester's own.
  FILE* pipe = popen(("gzip -dc '" + path.string() + "'").c_str(), "r");
  char line[256];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) {
    const auto action = actions.find(line[0]);
    if (action == actions.end()) continue;
    unsigned long long address = 0;
    long long size_bytes = 0;
    long long third = 0;  // the stream; of a block that was there, the bytes asked for
    // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): recorded by torch
    if (std::sscanf(line + 1, "%llu %lld %lld", &address, &size_bytes, &third) < 2) continue;
    if (line[0] == 'B') {
      entries.push_back({action->second, cuda(0), address, third > 0 ? third : size_bytes, 0});
    } else {
      entries.push_back({action->second, cuda(0), address, size_bytes,
                         line[0] == 'S' ? 0 : static_cast<uint64_t>(third)});
    }
  }
  if (pipe != nullptr) pclose(pipe);
  return entries;
}

TEST(DeviceTrace, LiveBytesOfRecordedTracesAreThoseOfAnIndependentCount) {
  std::error_code no_folder;
  std::vector<std::filesystem::path> files;
  for (const auto& each : std::filesystem::directory_iterator(recorded_traces(), no_folder)) {
    if (each.path().extension() == ".gz") files.push_back(each.path());
  }
  if (files.empty()) {
    const char* ci = std::getenv("CI");
    ASSERT_FALSE(ci != nullptr && std::string(ci) == "true") << "CI has no recorded traces";
    GTEST_SKIP() << "no recorded traces; set TIDEGAUGE_RECORDED_TRACES to their folder";
  }
  for (const auto& file : files) {
    SCOPED_TRACE(file.filename());
    Fed f;
    std::map<uint64_t, int64_t> blocks;
    int64_t live_bytes = 0;
    int64_t peak_bytes = 0;
    const std::vector<DeviceTraceEntry> entries = read_trace(file);
    ASSERT_GT(entries.size(), 50u);
    for (const DeviceTraceEntry& entry : entries) {
      if (entry.action == DeviceAction::Alloc) {
        const int64_t rounded = entry.size_bytes + (-entry.size_bytes & 511);
        ASSERT_TRUE(blocks.emplace(entry.address, rounded).second);
        live_bytes += rounded;
      } else if (entry.action == DeviceAction::FreeRequested) {
        const auto found = blocks.find(entry.address);
        ASSERT_NE(found, blocks.end());
        live_bytes -= found->second;
        blocks.erase(found);
      }
      peak_bytes = std::max(peak_bytes, live_bytes);
      f.feed(entry);
      ASSERT_EQ(f.live(), live_bytes);
    }
    EXPECT_EQ(f.ledger.peak().total_bytes(cuda(0)), peak_bytes);
    EXPECT_EQ(f.ledger.anomalies().total(), 0u) << f.ledger.anomalies().first();
  }
}

}  // namespace
}  // namespace tidegauge
