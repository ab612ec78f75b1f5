// SPDX-License-Identifier: BSD-3-Clause
//
// A program that shards a layer itself, as one of 4 ranks.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "tidegauge/tidegauge.h"

namespace {

using tidegauge::Category;
using tidegauge::GatherReason;
using tidegauge::MemCategory;
using tidegauge::MemTracker;
using tidegauge::ShardedUnit;
using tidegauge::UnitBirths;
using tidegauge::UnitFact;
using tidegauge::UnitMemory;
using tidegauge::UnitState;

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): the CPU exists
const c10::Device kCpu(c10::kCPU);

constexpr int64_t kRanks = 4;
constexpr int64_t kWidth = 32;
constexpr int64_t kWhole = kWidth * kWidth * 4;  // bytes of the weight
constexpr int64_t kShard = kWhole / kRanks;

/// One weight without a bias.
class ShardedLayer {
 public:
  explicit ShardedLayer(std::string name) : unit(std::move(name)) {
    unit.label(UnitFact::Shard, shard);
  }

  void gather(GatherReason reason) {
    unit.begin_gather(reason);
    at::Tensor buffer;
    {
      const UnitBirths births(unit, UnitFact::GatherBuffer);
      buffer = shard.repeat({kRanks});  // the all-gather
    }
    {
      const UnitBirths births(unit, UnitFact::Unsharded);
      weight = buffer.view({kWidth, kWidth}).clone().requires_grad_();
    }
    unit.finish_gather();
  }

  void release() {
    weight.reset();
    unit.release();
  }

  void reduce() {
    at::Tensor output;
    {
      const UnitBirths births(unit, UnitFact::ReduceBuffer);
      unit.label(UnitFact::UnshardedGrad, weight.grad());
      const at::Tensor input = weight.grad().flatten().clone();
      weight.mutable_grad().reset();
      output = input.view({kRanks, -1})[0].clone();  // the reduce-scatter
    }
    grad = output;
    unit.label(UnitFact::ReducedGrad, grad);
    unit.reduce();
  }

  ShardedUnit unit;
  at::Tensor shard = torch::randn({kWidth * kWidth / kRanks});
  at::Tensor weight;
  at::Tensor grad;
};

class ShardedUnitTest : public ::testing::Test {
 protected:
  UnitMemory unit(size_t index = 0) const { return tracker.units().at(index); }
  int64_t now(Category category) const {
    const auto all = unit().now;
    return all.empty() ? 0 : all.front()[category];
  }
  int64_t total(MemCategory category) const {
    return tracker.get_tracker_snapshot().bytes(kCpu, category);
  }

  MemTracker tracker;
};

TEST_F(ShardedUnitTest, BytesFollowGatherAndRelease) {
  ShardedLayer layer("layer");
  tracker.enter();
  EXPECT_EQ(now(Category::ShardedParam), kShard);
  EXPECT_EQ(unit().state, UnitState::Sharded);
  layer.gather(GatherReason::Forward);
  EXPECT_EQ(unit().name, "layer");
  EXPECT_EQ(unit().state, UnitState::Unsharded);
  EXPECT_EQ(now(Category::UnshardedParam), kWhole);
  EXPECT_EQ(now(Category::AllGather), 0);
  EXPECT_EQ(total(MemCategory::Parameter), kShard + kWhole);
  layer.release();
  EXPECT_EQ(now(Category::UnshardedParam), 0);
  EXPECT_EQ(unit().state, UnitState::Sharded);
  tracker.exit();

  // At the peak, only the buffer and the weight were alive.
  const UnitMemory report = unit();
  ASSERT_EQ(report.at_peak.size(), 1);
  EXPECT_EQ(report.at_peak[0][Category::AllGather], kWhole);
  EXPECT_EQ(report.at_peak[0][Category::UnshardedParam], kWhole);
  EXPECT_EQ(report.at_peak[0].total_bytes(), kShard + 2 * kWhole);
  EXPECT_DOUBLE_EQ(report.peak_share[0], 1.0);
  ASSERT_EQ(report.gatherings.size(), 1);
  EXPECT_EQ(report.gatherings[0].reason, GatherReason::Forward);
  EXPECT_LE(report.gatherings[0].begun_ns, *report.gatherings[0].complete_ns);
  EXPECT_LE(*report.gatherings[0].complete_ns, *report.gatherings[0].released_ns);
}

TEST_F(ShardedUnitTest, TimelineHasTheBytesOfEachMomentOfAStep) {
  ShardedLayer layer("layer");
  tracker.enter();
  layer.gather(GatherReason::Forward);
  torch::ones({2, kWidth}).matmul(layer.weight).sum().backward();
  layer.reduce();
  layer.release();
  tracker.exit();

  std::vector<int64_t> whole;
  std::vector<int64_t> reduced;
  for (const auto& moment : unit().timeline) {
    const auto& bytes = moment.bytes;
    if (whole.empty() || whole.back() != bytes[Category::UnshardedParam]) {
      whole.push_back(bytes[Category::UnshardedParam]);
    }
    if (reduced.empty() || reduced.back() != bytes[Category::ReduceScatter]) {
      reduced.push_back(bytes[Category::ReduceScatter]);
    }
  }
  EXPECT_EQ(whole, (std::vector<int64_t>{0, kWhole, 0}));
  // The input; input and output; the output alone, which is the gradient of the shard.
  EXPECT_EQ(reduced, (std::vector<int64_t>{0, kWhole, kWhole + kShard, kShard, 0}));
  EXPECT_EQ(now(Category::ShardedGrad), kShard);
  EXPECT_EQ(now(Category::UnshardedGrad), 0);
  EXPECT_EQ(unit().reduce_count, 1);
  EXPECT_EQ(tracker.anomaly_count(), 0) << tracker.first_anomaly();
}

TEST_F(ShardedUnitTest, UnitsAreSeparateAndTrackersAgree) {
  ShardedLayer first("first");
  ShardedLayer second("second");
  MemTracker other;  // created later, so the program reports the shards again
  second.unit.label(UnitFact::Shard, second.shard);
  tracker.enter();
  other.enter();
  second.gather(GatherReason::User);
  other.exit();
  tracker.exit();
  ASSERT_EQ(tracker.units().size(), 2);
  EXPECT_EQ(unit(0).now.at(0).total_bytes(), kShard);
  EXPECT_EQ(unit(1).now.at(0).total_bytes(), kShard + kWhole);
  ASSERT_EQ(other.units().size(), 1);
  EXPECT_EQ(other.units()[0].name, "second");
  EXPECT_EQ(other.units()[0].now.at(0).total_bytes(), kShard + kWhole);
}

TEST_F(ShardedUnitTest, MemoryOfALongRunDoesNotGrow) {
  const torch::NoGradGuard no_grad;
  ShardedLayer layer("layer");
  tracker.enter();
  const auto run = [&](int times) {
    for (int i = 0; i < times; ++i) {
      layer.gather(GatherReason::Forward);
      layer.release();
    }
  };
  run(1);
  const UnitMemory before = unit();
  run(30000);  // six changes each; 16,384 are kept
  const UnitMemory after = unit();
  tracker.exit();
  EXPECT_LE(after.timeline.size(), 2 * 16384);
  EXPECT_EQ(after.gatherings.size(), 64);
  ASSERT_EQ(after.at_peak.size(), 1);
  EXPECT_EQ(after.at_peak[0].bytes, before.at_peak[0].bytes);
  ASSERT_EQ(after.now.size(), 1);
  EXPECT_EQ(after.now[0].bytes, before.now[0].bytes);
}

TEST_F(ShardedUnitTest, ProgramWithoutATrackerRuns) {
  ShardedLayer layer("layer");
  layer.unit.label(UnitFact::Shard, at::Tensor());
  layer.gather(GatherReason::Forward);
  layer.release();
  EXPECT_EQ(layer.unit.name(), "layer");
  EXPECT_NE(layer.unit.id(), ShardedUnit("other").id());
}

}  // namespace
