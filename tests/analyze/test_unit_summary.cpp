// SPDX-License-Identifier: BSD-3-Clause
// The units of a trace equal the live units that got the same events.
#include <gtest/gtest.h>

#include "analyze/unit_summary.h"
#include "core/ledger/sharded_units.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

constexpr UnitId kUnit{1};
constexpr UnitId kOther{2};

/// A ledger, the units and a recorder that get the same events.
class Program {
 public:
  Program() : recorder_(folder_.file("run.tide"), {.max_delay_ns = 1'000'000}) {
    name(kUnit, "block");
    name(kOther, "head");
  }

  void name(UnitId unit, const std::string& text) {
    units_.add(unit, text);
    recorder_.name_unit(unit, text);
  }
  void apply(const Event& event) {
    ledger_.apply(event);
    recorder_.record(event, nullptr, {});
    units_.apply(event, ledger_);
  }
  void apply(const UnitEvent& event) {
    if (units_.apply(event, ledger_)) recorder_.record_unit(event);
  }
  void record(UnitId unit, UnitEventKind kind, int64_t time_ns) {
    apply(UnitEvent{.time_ns = time_ns, .unit = unit, .kind = kind});
  }
  void own(UnitId unit, StorageId storage) {
    apply(UnitEvent{.storage = storage, .unit = unit, .kind = UnitEventKind::StorageOwned});
  }
  std::vector<UnitSummary> read() {
    recorder_.flush();
    Reader reader(recorder_.path());
    return summarize_units(reader);
  }

  std::vector<UnitReport> read_live() { return units_.read(ledger_.peak()); }

 private:
  Folder folder_;
  Recorder recorder_;
  Ledger ledger_;
  ShardedUnits units_;
};

TEST(UnitSummary, BytesAtThePeakEqualThoseOfTheLiveUnits) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {  // every third one is hostile
    Program program;
    int64_t time_ns = 0;
    for (const Event& event : random_events(seed, 500)) {
      program.apply(event);
      const UnitId unit = event.storage.value % 2 ? kUnit : kOther;
      if (event.storage.value % 3 != 0) program.own(unit, event.storage);
      if (event.kind == EventKind::StorageRelabelled) program.own(kUnit, event.storage);
      program.record(unit, static_cast<UnitEventKind>(1 + event.storage.value % 5), ++time_ns);
    }
    const std::vector<UnitReport> live = program.read_live();
    const std::vector<UnitSummary> replayed = program.read();
    ASSERT_EQ(replayed.size(), live.size());
    for (size_t i = 0; i < live.size(); ++i) {
      EXPECT_EQ(replayed[i].name, live[i].name);
      EXPECT_EQ(replayed[i].at_peak, live[i].at_peak) << "seed " << seed;
      EXPECT_EQ(replayed[i].reduce_count, live[i].reduce_count);
    }
  }
}

TEST(UnitSummary, GatheringsAreCountedAndTheLongestIsKept) {
  Program program;
  const auto gather = [&](int64_t begun, int64_t whole, int64_t released) {
    program.record(kUnit, UnitEventKind::GatherBegun, begun);
    program.record(kUnit, UnitEventKind::GatherFinished, whole);
    program.record(kUnit, UnitEventKind::Released, released);
  };
  for (int64_t i = 0; i < 100; ++i) gather(10 * i, 10 * i + 1, 10 * i + 3);
  gather(2000, 2001, 2008);
  gather(2010, 2011, 2012);
  program.record(kOther, UnitEventKind::GatherBegun, 2020);
  program.record(kOther, UnitEventKind::GatherFinished, 2021);
  program.apply(events::step_marker({2030, {}, kCpu}));  // the end, and it is still whole
  const std::vector<UnitSummary> units = program.read();
  ASSERT_EQ(units.size(), 2);
  EXPECT_EQ(units[0].gather_count, 102);
  EXPECT_EQ(units[0].longest_whole_ns, 7);
  EXPECT_EQ(units[1].gather_count, 1);
  EXPECT_EQ(units[1].longest_whole_ns, 9);
}

TEST(UnitSummary, RunWithoutShardingHasNoUnits) {
  Program program;
  program.apply(events::storage_born({0, {}, kCpu}, StorageId(1), 8));
  EXPECT_TRUE(program.read().empty());
}

}  // namespace
}  // namespace tidegauge
