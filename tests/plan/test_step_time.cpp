// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "core/events/event.h"
#include "plan/step_time.h"
#include "tidegauge/fit.h"

namespace {

using tidegauge::CollectiveKind;
using tidegauge::device_catalogue;
using tidegauge::DeviceModel;
using tidegauge::DeviceSpeed;
using tidegauge::find_speed;
using tidegauge::find_step_time;
using tidegauge::kInBackward;
using tidegauge::kInOptimizerStep;
using tidegauge::kInRecompute;
using tidegauge::OpClass;
using tidegauge::OpCost;
using tidegauge::OpEntry;
using tidegauge::StepTime;

/// 1 flop and 1 byte per ns, and nothing else.
DeviceSpeed unit_speed() {
  DeviceSpeed speed{.half_flops = 1e9, .single_flops = 5e8, .memory_bytes = 1e9, .link_bytes = 1e9};
  speed.network_bytes = 1e8;
  speed.matmul_share = speed.attention_share = speed.convolution_share = 1;
  speed.memory_share = speed.link_share = 1;
  speed.launch_ns = speed.kernel_ns = speed.collective_ns = 0;
  return speed;
}
OpCost matmul(int64_t flops) {
  return {.kind = OpClass::Matmul, .flops = flops, .dtype = "bfloat16"};
}
OpCost gather(int64_t payload_bytes) {
  OpCost cost{.kind = OpClass::Collective, .collective = CollectiveKind::AllGather};
  cost.payload_bytes = payload_bytes;
  cost.group_size = 2;
  return cost;
}
OpEntry op(uint32_t number, uint16_t stream = 0, uint8_t facts = 0) {
  return {OpEntry::Kind::Op, facts, stream, number};
}
OpEntry record(uint32_t event, uint16_t stream) {
  return {OpEntry::Kind::Record, 0, stream, event};
}
OpEntry wait(uint32_t event, uint16_t stream) { return {OpEntry::Kind::Wait, 0, stream, event}; }

TEST(StepTime, OpsOfAStreamRunOneAfterAnother) {
  const std::vector<OpEntry> entries{op(0), op(1)};
  EXPECT_EQ(find_step_time(entries, {matmul(100), matmul(50)}, unit_speed()).total_ns, 150);
}

TEST(StepTime, SlowerOfComputeAndMemoryDecides) {
  OpCost cost = matmul(100);
  cost.read_bytes = 300;
  EXPECT_EQ(unit_speed().time_ns(cost), 300);
  cost.flops = 1000;
  EXPECT_EQ(unit_speed().time_ns(cost), 1000);
  cost.masked_flops = 600;  // a causal kernel skips them
  EXPECT_EQ(unit_speed().time_ns(cost), 400);
  cost.dtype = "float32";
  EXPECT_EQ(unit_speed().time_ns(cost), 800);
}

TEST(StepTime, CommunicationIsExposedAsFarAsComputeWaitsForIt) {
  // A gather of 2 x 200 bytes sends 200: 200 ns beside 150 ns of compute.
  const std::vector<OpEntry> entries{op(1, 7), record(1, 7), op(0), wait(1, 0), op(0)};
  const StepTime time = find_step_time(entries, {matmul(150), gather(400)}, unit_speed());
  EXPECT_EQ(time.communication_ns, 200);
  EXPECT_EQ(time.exposed_ns, 50);
  EXPECT_EQ(time.forward_ns, 300);
  EXPECT_EQ(time.total_ns, 350);
}

TEST(StepTime, CollectiveOnTheComputeStreamIsExposed) {
  const StepTime time =
      find_step_time(std::vector{op(0), op(1)}, {matmul(150), gather(400)}, unit_speed());
  EXPECT_EQ(time.exposed_ns, 200);
  EXPECT_EQ(time.total_ns, 350);
}

TEST(StepTime, AllReduceSendsEverythingTwice) {
  OpCost cost = gather(400);
  cost.collective = CollectiveKind::AllReduce;
  EXPECT_EQ(unit_speed().time_ns(cost), 400);
  cost.group_size = 16;  // 15 of 16 parts, twice, to other nodes with a tenth of the speed
  EXPECT_EQ(unit_speed().time_ns(cost), 2 * 400 * 15 / 16 * 10);
}

TEST(StepTime, PhasesAddUp) {
  const std::vector<OpEntry> entries{op(0), op(0, 0, kInBackward | kInRecompute),
                                     op(0, 0, kInBackward), op(0, 0, kInOptimizerStep)};
  const StepTime time = find_step_time(entries, {matmul(10)}, unit_speed());
  EXPECT_EQ(time.forward_ns, 10);
  EXPECT_EQ(time.recompute_ns, 10);
  EXPECT_EQ(time.backward_ns, 10);
  EXPECT_EQ(time.optimizer_ns, 10);
  EXPECT_EQ(time.flops, 40);
  EXPECT_EQ(time.recompute_flops, 10);
}

TEST(StepTime, SlowHostLeavesTheDeviceIdle) {
  DeviceSpeed speed = unit_speed();
  speed.launch_ns = 100;
  const StepTime time = find_step_time(std::vector{op(0), op(0)}, {matmul(10)}, speed);
  EXPECT_EQ(time.total_ns, 210);  // the second is launched at 200
  EXPECT_EQ(time.idle_ns, 100 + 90);
}

TEST(StepTime, HostOpsCountOnlyIfNothingRunsOnTheDevice) {
  OpCost host = matmul(10);
  host.is_on_host = true;
  const std::vector<OpEntry> entries{op(0), op(1)};
  EXPECT_EQ(find_step_time(entries, {host, host}, unit_speed()).total_ns, 20);
  EXPECT_EQ(find_step_time(entries, {host, matmul(10)}, unit_speed()).total_ns, 10);
}

TEST(StepTime, ScaleChangesComputeAndMemory) {
  const DeviceSpeed twice = unit_speed().scaled(2);
  EXPECT_EQ(twice.time_ns(matmul(100)), 50);
  EXPECT_EQ(twice.time_ns(gather(400)), 200);
}

TEST(StepTime, EverySpeedBelongsToADeviceOfTheCatalogue) {
  int known = 0;
  for (const DeviceModel& device : device_catalogue()) known += find_speed(device.key) != nullptr;
  EXPECT_EQ(known, 11);
  EXPECT_EQ(find_speed("h100-80g")->half_flops, 989.4e12);
  EXPECT_EQ(find_speed("example"), nullptr);
}

}  // namespace
