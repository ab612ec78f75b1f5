// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/events/event.h"
#include "plan/step_time.h"
#include "tidegauge/errors.h"
#include "tidegauge/fit.h"

namespace {

using tidegauge::CollectiveKind;
using tidegauge::device_catalogue;
using tidegauge::DeviceModel;
using tidegauge::DeviceSpeed;
using tidegauge::find_speed;
using tidegauge::find_speed_source;
using tidegauge::find_step_time;
using tidegauge::kInBackward;
using tidegauge::kInOptimizerStep;
using tidegauge::kInRecompute;
using tidegauge::OpClass;
using tidegauge::OpCost;
using tidegauge::OpEntry;
using tidegauge::OpSlice;
using tidegauge::StepTime;
using tidegauge::UsageError;

/// 1 flop and 1 byte per ns, and nothing else.
DeviceSpeed unit_speed() {
  DeviceSpeed speed{.half_flops = 1e9, .bfloat_flops = 1e9, .single_flops = 5e8};
  speed.memory_bytes = speed.link_bytes = 1e9;
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
OpEntry enter(uint32_t module) { return {OpEntry::Kind::Enter, 0, 0, module}; }
OpEntry leave(uint32_t module) { return {OpEntry::Kind::Leave, 0, 0, module}; }
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

TEST(StepTime, CalibrationReplacesConstants) {
  DeviceSpeed speed = unit_speed();
  speed.set("matmul_share", 2);
  EXPECT_EQ(speed.time_ns(matmul(100)), 50);
  EXPECT_EQ(speed.time_ns(gather(400)), 200);
  for (const auto& [name, value] : unit_speed().constants()) {
    if (value == 0) continue;
    speed.set(name, value);
  }
  EXPECT_EQ(speed.time_ns(matmul(100)), 100);
  EXPECT_THROW(speed.set("magic", 1), UsageError);
  EXPECT_THROW(speed.set("matmul_share", 0), UsageError);
  EXPECT_THROW(speed.set("matmul_share", std::nan("")), UsageError);
}

TEST(StepTime, SlicesNameTheInnermostModule) {
  const std::vector<OpEntry> entries{enter(1), op(0),    enter(2), op(1, 7), leave(2),
                                     op(0),    leave(9), leave(1), op(0)};
  std::vector<OpSlice> slices;
  find_step_time(entries, {matmul(10), gather(400)}, unit_speed(), &slices);
  std::vector<uint32_t> modules;
  for (const OpSlice& slice : slices) modules.push_back(slice.module.value);
  EXPECT_EQ(modules, (std::vector<uint32_t>{1, 2, 1, 0}));
  EXPECT_EQ(slices[1].stream, 7);
  EXPECT_EQ(slices[1].end_ns, 200);
  EXPECT_EQ(slices[2].begin_ns, 10);
  EXPECT_EQ(slices[2].end_ns, 20);
}

TEST(StepTime, IdealTimeIsThatOfProductsAtThePeakWithoutRecompute) {
  OpCost single = matmul(10);
  single.dtype = "float32";
  const std::vector<OpEntry> entries{op(0), op(1), op(0, 0, kInBackward | kInRecompute)};
  DeviceSpeed speed = unit_speed();
  speed.set("matmul_share", 0.5);
  EXPECT_EQ(find_step_time(entries, {matmul(10), single}, speed).ideal_ns, 10 + 20);
}

TEST(StepTime, EveryDeviceOfTheCatalogueHasASpeedWithItsSource) {
  for (const DeviceModel& device : device_catalogue()) {
    const DeviceSpeed* speed = find_speed(device.key);
    ASSERT_NE(speed, nullptr) << device.key;
    EXPECT_FALSE(find_speed_source(device.key).empty());
    EXPECT_GT(speed->half_flops, speed->single_flops);
    EXPECT_LE(speed->bfloat_flops, speed->half_flops);
    for (const auto& [name, value] : speed->constants()) EXPECT_GT(value, 0) << name;
  }
  EXPECT_EQ(find_speed("h100-80g")->half_flops, 989.4e12);
  EXPECT_EQ(find_speed("example"), nullptr);
  EXPECT_TRUE(find_speed_source("example").empty());
}

TEST(StepTime, DevicesWithoutProductsOfBfloat16ComputeThemAsSlowlyAsFloat32) {
  for (const char* old : {"t4", "v100-16g", "v100-32g"}) {
    const DeviceSpeed* speed = find_speed(old);
    EXPECT_EQ(speed->peak_flops("bfloat16"), speed->peak_flops("float32")) << old;
    EXPECT_GT(speed->peak_flops("float16"), 7 * speed->peak_flops("float32")) << old;
  }
  EXPECT_EQ(find_speed("a10g")->peak_flops("bfloat16"), 70e12);
}

}  // namespace
