// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "core/events/event_factory.h"
#include "export/allocation_plan.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

using namespace events;

AllocationPlan plan(const std::vector<Event>& events, Device device = kCpu) {
  const Folder folder;
  record(folder.file("a.tide"), events);
  Reader reader(folder.file("a.tide"));
  return plan_allocations(reader, device);
}

int64_t peak_bytes(const AllocationPlan& plan) {
  std::vector<int64_t> sizes(plan.allocations.size());
  int64_t now = 0;
  int64_t peak = 0;
  for (const PlannedRequest& request : plan.requests) {
    now += request.size_bytes - std::exchange(sizes[request.allocation], request.size_bytes);
    peak = std::max(peak, now);
  }
  return peak;
}

TEST(AllocationPlan, ResizeIsFreeThenRequest) {
  const StorageId a(1);
  const AllocationPlan made =
      plan({storage_born({}, a, 8), storage_resized({}, a, 12), storage_resized({}, a, 0),
            storage_resized({}, a, 4), storage_freed({}, a)});
  std::vector<int64_t> sizes;
  for (const PlannedRequest& request : made.requests) sizes.push_back(request.size_bytes);
  EXPECT_EQ(sizes, (std::vector<int64_t>{8, 0, 12, 0, 4, 0}));
  EXPECT_EQ(made.allocations.size(), 3U);
}

TEST(AllocationPlan, AllocationHasItsCategoryAtThePeak) {
  const StorageId a(1), b(2), late(3);
  const AllocationPlan made =
      plan({storage_born({}, a, 8), storage_born({}, b, 8),
            storage_relabelled({}, a, Role::IsParameter, Since::Now), storage_born({}, late, 8),
            storage_freed({}, late), storage_born({}, late, 4),
            storage_relabelled({}, a, Role::IsTemp, Since::Now),
            storage_relabelled({}, b, Role::IsGradient, Since::Birth),
            storage_relabelled({}, late, Role::IsTemp, Since::Now)});
  EXPECT_EQ(made.allocations[0].category, Category::Parameter);  // at the peak
  EXPECT_EQ(made.allocations[1].category, Category::Gradient);   // since birth
  EXPECT_EQ(made.allocations[2].category, Category::Activation);
  EXPECT_EQ(made.allocations[3].category, Category::Temp);  // the last one
}

TEST(AllocationPlan, CollectiveBuffersUseSideStreams) {
  const StorageId a(1), b(2);
  const AllocationPlan made =
      plan({storage_born({}, a, 8), storage_born({}, b, 8),
            storage_relabelled({}, a, Role::IsAllGatherBuffer, Since::Birth)});
  EXPECT_EQ(made.allocations[0].stream, 1);
  EXPECT_EQ(made.allocations[1].stream, 0);
}

TEST(AllocationPlan, DeviceAllocationUsesStreamOfItsBirth) {
  const StorageId a(1);
  const Origin on_device{.time_ns = 0, .thread = {}, .device = cuda(0)};
  const AllocationPlan made =
      plan({storage_born(on_device, a, 8, 0, {}, StreamId(7)),
            storage_relabelled(on_device, a, Role::IsAllGatherBuffer, Since::Birth)},
           cuda(0));
  EXPECT_EQ(made.allocations[0].stream, 7);
}

TEST(AllocationPlan, ModuleIsTheRunningOneOrTheOwner) {
  const StorageId a(1), b(2);
  Event owned = storage_relabelled({}, b, Role::IsParameter, Since::Birth);
  owned.module = ModuleId(9);
  const AllocationPlan made = plan({module_enter({}, ModuleId(5), Phase::Forward),
                                    storage_born({}, a, 8), storage_born({}, b, 8), owned});
  EXPECT_EQ(made.allocations[0].module, ModuleId(5));
  EXPECT_EQ(made.allocations[1].module, ModuleId(9));
}

TEST(AllocationPlan, PeakEqualsThatOfLedger) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const std::vector<Event> events = random_events(seed, 2000);
    Ledger ledger;
    std::map<Device, int64_t> highest;
    for (const Event& event : events) {
      ledger.apply(event);
      for (const DeviceSplit& device : ledger.current().devices) {
        highest[device.device] = std::max(highest[device.device], device.split.total());
      }
    }
    for (const auto& [device, bytes] : highest) {
      EXPECT_EQ(peak_bytes(plan(events, device)), bytes) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tidegauge
