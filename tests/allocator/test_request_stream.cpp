// SPDX-License-Identifier: BSD-3-Clause
//
// Sizes by hand: requests are rounded to 512 B; small ones (up to 1 MiB) come from segments of
// 2 MiB, larger ones (below 10 MiB) from segments of 20 MiB.
#include <gtest/gtest.h>

#include "allocator/request_stream.h"
#include "core/events/event_factory.h"

namespace tidegauge {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr Device kGpu = cuda(0);

Event born(uint64_t id, int64_t size_bytes, Device device = kGpu, uint8_t facts = 0) {
  return events::storage_born({0, {}, device}, StorageId(id), size_bytes, facts);
}
Event resized(uint64_t id, int64_t size_bytes) {
  return events::storage_resized({}, StorageId(id), size_bytes);
}
Event freed(uint64_t id) { return events::storage_freed({}, StorageId(id)); }
Event labelled(uint64_t id, Role role) {
  return events::storage_relabelled({}, StorageId(id), role, Since::Birth);
}

RunFigures simulate(Device device, std::initializer_list<Event> events,
                    const AllocatorOptions& options = {}) {
  RequestStream stream(device);
  for (const Event& event : events) stream.add(event);
  return stream.simulate(options);
}

TEST(RequestStream, RoundsAndReservesLikeTheDevice) {
  const RunFigures figures = simulate(kGpu, {born(1, 1000), born(2, 3 * kMiB)});
  EXPECT_EQ(figures.peak_reserved_bytes, 22 * kMiB);
  EXPECT_EQ(figures.peak_active_bytes, 1024 + 3 * kMiB);
  EXPECT_EQ(figures.slack_at_peak_bytes, 24);
  EXPECT_EQ(figures.unused_at_peak_bytes, 22 * kMiB - 1024 - 3 * kMiB);
}

TEST(RequestStream, CountsOnlyStoragesOfItsDevice) {
  EXPECT_EQ(simulate(kGpu, {born(1, 3 * kMiB, kCpu), freed(1)}).peak_reserved_bytes, 0);
  EXPECT_EQ(simulate(kCpu, {born(1, 3 * kMiB, kCpu)}).peak_reserved_bytes, 20 * kMiB);
}

TEST(RequestStream, ServesARequestFromFreedMemory) {
  const RunFigures figures =
      simulate(kGpu, {born(1, 12 * kMiB), freed(1), born(2, 12 * kMiB), freed(2)});
  EXPECT_EQ(figures.peak_reserved_bytes, 12 * kMiB);
  EXPECT_EQ(figures.final_active_bytes, 0);
}

TEST(RequestStream, ResizeHoldsOldAndNewMemoryForAMoment) {
  const RunFigures figures = simulate(kGpu, {born(1, 12 * kMiB), resized(1, 16 * kMiB)});
  EXPECT_EQ(figures.peak_reserved_bytes, 28 * kMiB);
  EXPECT_EQ(figures.final_active_bytes, 16 * kMiB);
}

TEST(RequestStream, StorageResizedToZeroFreesItsMemory) {
  const RunFigures figures = simulate(kGpu, {born(1, 12 * kMiB), resized(1, 0), born(2, 12 * kMiB),
                                             freed(2), resized(1, 12 * kMiB), freed(1)});
  EXPECT_EQ(figures.peak_reserved_bytes, 12 * kMiB);
  EXPECT_EQ(figures.final_active_bytes, 0);
}

TEST(RequestStream, CollectiveBuffersUseSeparateStreams) {
  // On one stream, the second request would reuse the memory of the first.
  const auto on_host = [](uint64_t id) { return born(id, 12 * kMiB, kCpu); };
  const RunFigures figures =
      simulate(kCpu, {on_host(1), labelled(1, Role::IsAllGatherBuffer), freed(1), on_host(2),
                      freed(2), on_host(3), labelled(3, Role::IsReduceScatterBuffer), freed(3),
                      on_host(4), labelled(4, Role::IsAllGatherBuffer)});
  EXPECT_EQ(figures.peak_reserved_bytes, 36 * kMiB);
}

TEST(RequestStream, WorkspacesOfCpuKernelsAreNotRequested) {
  EXPECT_EQ(simulate(kCpu, {born(1, 12 * kMiB, kCpu, kFromAllocator), resized(1, kMiB), freed(1)})
                .peak_reserved_bytes,
            0);
  EXPECT_EQ(simulate(kCpu, {born(1, 12 * kMiB, kCpu, kFromAllocator),
                            events::storage_claimed({}, StorageId(1), 0)})
                .peak_reserved_bytes,
            12 * kMiB);
  EXPECT_EQ(simulate(kGpu, {born(1, 12 * kMiB, kGpu, kFromAllocator)}).peak_reserved_bytes,
            12 * kMiB);
}

TEST(RequestStream, CountsRequestsThatDoNotFitAndContinues) {
  AllocatorOptions options;
  options.total_bytes = 40 * kMiB;
  options.outside_bytes = 20 * kMiB;
  const RunFigures figures = simulate(
      kGpu, {born(1, 12 * kMiB), born(2, 12 * kMiB), freed(2), freed(1), born(3, 18 * kMiB)},
      options);
  EXPECT_EQ(figures.out_of_memory, 1);
  EXPECT_EQ(figures.final_active_bytes, 18 * kMiB);
  EXPECT_EQ(simulate(kGpu, {born(1, INT64_MAX), freed(1)}).out_of_memory, 1);
}

TEST(RequestStream, SimulatesTheSameRequestsWithOtherSettings) {
  RequestStream stream(kGpu);
  for (uint64_t id = 1; id <= 3; ++id) stream.add(born(id, 11 * kMiB));
  EXPECT_EQ(stream.request_count(), 3u);
  EXPECT_EQ(stream.simulate({}).peak_reserved_bytes, 36 * kMiB);  // to 2 MiB
  AllocatorOptions expandable;
  expandable.config = parse_alloc_config("expandable_segments:True");
  EXPECT_EQ(stream.simulate(expandable).peak_reserved_bytes, 40 * kMiB);  // to pages of 20 MiB
}

TEST(RequestStream, EachStepHasPeaksOfItsOwn) {
  const Event step = events::step_marker({});
  RequestStream stream(kGpu);
  for (const Event& event : {born(1, 1000), step, born(2, 12 * kMiB), freed(2), step,
                             born(3, 4 * kMiB), freed(3), freed(1)}) {
    stream.add(event);
  }
  const SimulatedRun run = stream.replay({});
  const int64_t small = 1024, all = 14 * kMiB;
  EXPECT_EQ(run.before_steps, (StepFigures{1000, small, small, 2 * kMiB, 1}));
  const int64_t first = 12 * kMiB + small, second = 4 * kMiB + small;
  ASSERT_EQ(run.steps.size(), 2);
  EXPECT_EQ(run.steps[0], (StepFigures{12 * kMiB + 1000, first, first, all, 2}));
  EXPECT_EQ(run.steps[1], (StepFigures{4 * kMiB + 1000, second, second, all, 2}));
}

TEST(RequestStream, LayoutAtThePeakMatchesTheFigures) {
  RequestStream stream(kGpu);
  for (const Event& event : {born(1, 12 * kMiB), born(2, 3 * kMiB), born(3, 1000), freed(2),
                             born(4, 2 * kMiB), freed(1), freed(3), freed(4)}) {
    stream.add(event);
  }
  const RunFigures figures = stream.simulate({});
  int64_t reserved_bytes = 0, free_bytes = 0, slack_bytes = 0;
  const Layout layout = stream.layout_at_peak({});
  ASSERT_EQ(layout.size(), 3);
  for (const SegmentState& segment : layout) {
    reserved_bytes += segment.size_bytes;
    for (const BlockState& block : segment.blocks) {
      const bool is_free = block.use == BlockUse::Free;
      (is_free ? free_bytes : slack_bytes) += block.size_bytes - block.requested_bytes;
    }
  }
  EXPECT_EQ(reserved_bytes, figures.peak_reserved_bytes);
  EXPECT_EQ(reserved_bytes, 34 * kMiB);  // 12, 20 for the one of 3, 2 for the small one
  EXPECT_EQ(free_bytes, figures.unused_at_peak_bytes);
  EXPECT_EQ(free_bytes, 17 * kMiB + 2 * kMiB - 1024);
  EXPECT_EQ(slack_bytes, figures.slack_at_peak_bytes);
  EXPECT_EQ(slack_bytes, 24);
}

TEST(RequestStream, NoRequestsHaveNoLayout) {
  EXPECT_TRUE(RequestStream(kGpu).layout_at_peak({}).empty());
}

}  // namespace
}  // namespace tidegauge
