// SPDX-License-Identifier: BSD-3-Clause
// Traces that earlier versions recorded, and the figures that those versions read from them
// (tests/golden/traces/README.md).
#include <gtest/gtest.h>

#include <string>

#include "core/ledger/ledger.h"
#include "trace/reader.h"

namespace tidegauge {
namespace {

std::string old_trace(const std::string& name) {
  return TIDEGAUGE_SOURCE_DIR "/tests/golden/traces/" + name;
}

TEST(OldTraces, PlainRunOfFormat12IsRead) {
  Reader reader(old_trace("format_1.2_plain.tide"));
  EXPECT_TRUE(reader.is_complete());
  EXPECT_EQ(reader.event_count(), 360);
  EXPECT_EQ(reader.modules().size(), 10);
  EXPECT_EQ(reader.run_facts().at("torch_version"), "2.13.0");
  Ledger ledger;
  reader.replay(ledger);
  EXPECT_EQ(ledger.anomalies().total(), 0);
  const Snapshot peak = ledger.peak();
  ASSERT_EQ(peak.devices.size(), 1);
  EXPECT_EQ(peak.devices[0].at.sequence, 308);
  EXPECT_EQ(peak.devices[0].at.step, 2);
  CategorySplit expected;
  expected[Category::Parameter] = 266'784;
  expected[Category::Gradient] = 266'784;
  expected[Category::Optstate] = 266'784;
  expected[Category::Temp] = 32'768;
  expected[Category::SavedActivation] = 8'192;
  expected[Category::Activation] = 8;
  EXPECT_EQ(peak.devices[0].split, expected);
}

TEST(OldTraces, ShardedRunOfFormat12IsRead) {
  Reader reader(old_trace("format_1.2_sharded.tide"));
  EXPECT_EQ(reader.event_count(), 530);
  EXPECT_EQ(reader.units().size(), 3);
  Ledger ledger;
  reader.replay(ledger);
  EXPECT_EQ(ledger.anomalies().total(), 0);
  const Snapshot peak = ledger.peak();
  ASSERT_EQ(peak.devices.size(), 1);
  EXPECT_EQ(peak.devices[0].at.sequence, 193);
  CategorySplit expected;
  expected[Category::UnshardedGrad] = 134'432;
  expected[Category::UnshardedParam] = 134'432;
  expected[Category::AllGather] = 132'352;
  expected[Category::ShardedParam] = 66'696;
  expected[Category::SavedActivation] = 49'152;
  expected[Category::Temp] = 49'152;
  expected[Category::Activation] = 8;
  EXPECT_EQ(peak.devices[0].split, expected);
  size_t gathers = 0;
  for (const TraceUnitEvent& each : reader.unit_events()) {
    if (each.event.kind == UnitEventKind::GatherBegun) ++gathers;
  }
  EXPECT_EQ(gathers, 10);  // two blocks twice in each step, the root once
}

}  // namespace
}  // namespace tidegauge
