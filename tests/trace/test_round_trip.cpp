// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <utility>

#include "core/ledger/equal_answers.h"
#include "core/ledger/labeller.h"
#include "trace/database.h"
#include "trace_files.h"

namespace tidegauge {
namespace {

TEST(RoundTrip, ReplayedLedgerEqualsTheLiveLedger) {
  const Folder folder;
  const uint64_t streams = std::getenv("TIDEGAUGE_LONG") ? 2000 : 60;
  for (uint64_t seed = 1; seed <= streams; ++seed) {
    const std::vector<Event> events = random_events(seed, 300);
    record(folder.file("run.tide"), events, {.overwrites = true});
    Reader reader(folder.file("run.tide"));
    EXPECT_EQ(reader.event_count(), events.size());
    EXPECT_TRUE(reader.is_complete());
    EXPECT_TRUE(reader.gaps().empty());
    EXPECT_EQ(read_events(reader), events);
    Ledger replayed;
    reader.replay(replayed);
    Ledger live = apply_all(events);
    expect_equal_answers(replayed, live);
    EXPECT_EQ(replayed.anomalies(), live.anomalies());
    EXPECT_EQ(replayed.now(), live.now());
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(RoundTrip, PartialReadsCrossBatches) {
  const Folder folder;
  const std::vector<Event> events = random_events(1, 50'000);
  record(folder.file("run.tide"), events);
  Reader reader(folder.file("run.tide"));
  EXPECT_EQ(read_events(reader), events);
  EXPECT_EQ(read_events(reader, 20'001, 30'000),
            std::vector<Event>(events.begin() + 20'000, events.begin() + 30'000));
  EXPECT_EQ(read_events(reader, 50'000), std::vector<Event>{events.back()});
  EXPECT_TRUE(read_events(reader, 50'001).empty());
  Ledger half;
  reader.replay(half, 25'000);
  Ledger live = apply_all({events.begin(), events.begin() + 25'000});
  expect_equal_answers(half, live);
}

TEST(RoundTrip, StoragesHaveNamesShapesAndLifetimes) {
  const Folder folder;
  const events::Origin origin{5, ThreadId(1), kCpu};
  const std::array<int64_t, 2> shape = {2, 3};
  const TensorFacts tensor{"float32", shape};
  {
    Recorder recorder(folder.file("run.tide"), {.facts = {{"torch_version", "2.13.0"}}});
    recorder.name_module(ModuleId(4), "Net", "my.Net");
    recorder.name_module(ModuleId(4), "Outer.net", "");
    recorder.name_op(OpId(7), "aten::mm");
    recorder.record(events::step_marker(origin), nullptr, {});
    recorder.record(events::module_enter(origin, ModuleId(4), Phase::Forward), nullptr, {});
    recorder.record(events::storage_born(origin, StorageId(9), 24, 0, OpId(7)), &tensor, {});
    recorder.record(events::storage_born(origin, StorageId(10), 100), nullptr, {});
    recorder.flush();  // later events change rows of an earlier batch
    recorder.record(
        events::storage_relabelled(origin, StorageId(9), Role::IsGradient, Since::Birth), nullptr,
        {});
    recorder.record(events::storage_freed(origin, StorageId(10)), nullptr, {});
  }
  Reader reader(folder.file("run.tide"));
  EXPECT_EQ(reader.run_facts().at("torch_version"), "2.13.0");
  EXPECT_EQ(reader.run_facts().at("pid"), std::to_string(::getpid()));
  ASSERT_EQ(reader.modules().size(), 1);
  EXPECT_EQ(reader.modules()[0].name, "Outer.net");
  EXPECT_EQ(reader.modules()[0].class_name, "my.Net");
  EXPECT_EQ(reader.ops().at(OpId(7)), "aten::mm");
  const auto alive = reader.storages_alive_at(4, 10);
  ASSERT_EQ(alive.size(), 2);
  EXPECT_EQ(alive[0].size_bytes, 100);
  EXPECT_EQ(alive[0].freed, 6);
  EXPECT_EQ(alive[1].op, "aten::mm");
  EXPECT_EQ(alive[1].dtype, "float32");
  EXPECT_EQ(alive[1].shape, "[2, 3]");
  EXPECT_EQ(alive[1].module, ModuleId(4));
  EXPECT_EQ(alive[1].category, Category::Gradient);
  EXPECT_EQ(alive[1].step, 1);
  EXPECT_EQ(reader.storages_alive_at(6, 10).size(), 1);
}

TEST(RoundTrip, StacksAreKeptWithTheirStorages) {
  const Folder folder;
  const events::Origin origin{5, ThreadId(1), kCpu};
  {
    Recorder recorder(folder.file("run.tide"));
    recorder.name_stack(StackId(3), "inner\nouter");
    recorder.record(events::storage_born(origin, StorageId(9), 24), nullptr, StackId(3));
    recorder.record(events::storage_born(origin, StorageId(10), 12, kFromAllocator), nullptr, {});
    recorder.flush();  // StorageClaimed changes a row of an earlier batch
    recorder.record(events::storage_claimed(origin, StorageId(10), 0), nullptr, StackId(3));
    recorder.record(events::storage_born(origin, StorageId(11), 6), nullptr, {});
  }
  Reader reader(folder.file("run.tide"));
  const auto alive = reader.storages_alive_at(4, 10);
  ASSERT_EQ(alive.size(), 3);
  EXPECT_EQ(alive[0].stack, "inner\nouter");
  EXPECT_EQ(alive[1].stack, "inner\nouter");
  EXPECT_EQ(alive[2].stack, "");
}

PostMortem some_post_mortem() {
  return {.sequence = 2,
          .time_ns = 5,
          .step = 0,
          .failed = {4096, "cpu"},
          .op = "aten::mm",
          .module = "Net",
          .message = "no memory",
          .live = {{"cpu", Category::Gradient, "Net", "aten::mm", "float32", "[6]", "a\nb", 2, 48},
                   {"meta", Category::Other, "", "", "", "", "", 1, 8}}};
}

TEST(RoundTrip, FailedAllocationsAreKeptWithLiveStorages) {
  const Folder folder;
  const events::Origin origin{5, ThreadId(1), kCpu};
  const PostMortem first = some_post_mortem();
  PostMortem second = some_post_mortem();
  second.sequence = 3;
  second.failed.size_bytes.reset();
  second.live.clear();
  {
    Recorder recorder(folder.file("run.tide"));
    recorder.record(events::storage_born(origin, StorageId(9), 24), nullptr, {});
    recorder.record_failure(events::allocation_failed(origin, 4096, {}, {}), first);
    recorder.flush();
    recorder.record_failure(events::allocation_failed(origin, 0, {}, {}), second);
  }
  Reader reader(folder.file("run.tide"));
  EXPECT_EQ(reader.failures(), (std::vector<PostMortem>{first, second}));
  const std::vector<Event> events = read_events(reader, 2);
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].kind, EventKind::AllocationFailed);
  EXPECT_EQ(events[0].size_bytes, 4096);
}

TEST(RoundTrip, FailureAmongLostEventsIsKept) {
  const Folder folder;
  const events::Origin origin{5, ThreadId(1), kCpu};
  {
    // No event may wait, so all events but the first are lost until the file is closed.
    Recorder recorder(folder.file("run.tide"),
                      {.max_waiting_events = 1, .max_delay_ns = 3'600'000'000'000});
    for (const uint64_t id : {1, 2, 3}) {
      recorder.record(events::storage_born(origin, StorageId(id), 8), nullptr, {});
    }
    recorder.record_failure(events::allocation_failed(origin, 4096, {}, {}), some_post_mortem());
  }
  Reader reader(folder.file("run.tide"));
  const auto failures = reader.failures();
  ASSERT_EQ(failures.size(), 1);
  EXPECT_EQ(failures[0].live, some_post_mortem().live);
  const std::vector<Event> event = read_events(reader, failures[0].sequence, failures[0].sequence);
  ASSERT_EQ(event.size(), 1);
  EXPECT_EQ(event[0].kind, EventKind::AllocationFailed);
  EXPECT_EQ(reader.storages_alive_at(failures[0].sequence, 10).size(), 3);
}

UnitEvent owned(uint64_t storage, uint32_t unit) {
  return {.storage = StorageId(storage), .unit = UnitId(unit), .kind = UnitEventKind::StorageOwned};
}

UnitEvent changed(uint32_t unit, UnitEventKind kind, int64_t time_ns, GatherReason reason = {}) {
  return {.time_ns = time_ns, .unit = UnitId(unit), .kind = kind, .reason = reason};
}

/// (number of events before the unit event, unit event)
std::vector<std::pair<uint64_t, UnitEvent>> read_unit_events(Reader& reader) {
  std::vector<std::pair<uint64_t, UnitEvent>> events;
  for (const TraceUnitEvent& each : reader.unit_events()) {
    events.emplace_back(each.sequence, each.event);
  }
  return events;
}

TEST(RoundTrip, UnitsAreKeptWithTheirStoragesAndChanges) {
  const Folder folder;
  const events::Origin origin{5, ThreadId(1), kCpu};
  {
    Recorder recorder(folder.file("run.tide"));
    recorder.name_unit(UnitId(1), "Block");
    recorder.name_unit(UnitId(1), "blocks.0");
    recorder.name_unit(UnitId(2), "");
    recorder.record_unit(changed(1, UnitEventKind::GatherBegun, 3, GatherReason::Recompute));
    recorder.record(events::storage_born(origin, StorageId(9), 24), nullptr, {});
    recorder.record_unit(owned(9, 1));
    recorder.record(events::storage_born(origin, StorageId(10), 24), nullptr, {});
    recorder.record_unit(changed(1, UnitEventKind::GatherFinished, 6));
    recorder.flush();
    recorder.record_unit(changed(1, UnitEventKind::ReleasedToPostForwardShard, 7));
    recorder.record_unit(changed(2, UnitEventKind::Reduced, 8));
    recorder.record(events::storage_freed(origin, StorageId(10)), nullptr, {});
    recorder.record_unit(changed(1, UnitEventKind::Released, 9));
  }
  Reader reader(folder.file("run.tide"));
  EXPECT_EQ(reader.units(),
            (std::map<UnitId, std::string>{{UnitId(1), "blocks.0"}, {UnitId(2), ""}}));
  const std::vector<std::pair<uint64_t, UnitEvent>> expected = {
      {0, changed(1, UnitEventKind::GatherBegun, 3, GatherReason::Recompute)},
      {1, owned(9, 1)},
      {2, changed(1, UnitEventKind::GatherFinished, 6)},
      {2, changed(1, UnitEventKind::ReleasedToPostForwardShard, 7)},
      {2, changed(2, UnitEventKind::Reduced, 8)},
      {3, changed(1, UnitEventKind::Released, 9)}};
  EXPECT_EQ(read_unit_events(reader), expected);
}

TEST(RoundTrip, UnitsOfLostEventsOwnTheRemainingStorages) {
  const Folder folder;
  const events::Origin origin{5, ThreadId(1), kCpu};
  const auto make = [&](Recorder& recorder, uint64_t storage, uint32_t unit) {
    recorder.record(events::storage_born(origin, StorageId(storage), 8), nullptr, {});
    recorder.record_unit(owned(storage, unit));
  };
  {
    // All events but the first are lost until a step begins and no event waits.
    Recorder recorder(folder.file("run.tide"),
                      {.max_waiting_events = 1, .max_delay_ns = 3'600'000'000'000});
    make(recorder, 1, 1);
    make(recorder, 2, 1);
    recorder.record_unit(changed(1, UnitEventKind::GatherBegun, 1));
    recorder.record_unit(changed(1, UnitEventKind::Released, 2));
    make(recorder, 3, 2);
    recorder.record_unit(changed(1, UnitEventKind::GatherBegun, 3, GatherReason::Backward));
    recorder.record(events::storage_freed(origin, StorageId(2)), nullptr, {});
    recorder.flush();
    make(recorder, 4, 1);
  }
  Reader reader(folder.file("run.tide"));
  EXPECT_EQ(read_events(reader).size(), 3);  // births of 1, 3 and 4
  const std::vector<std::pair<uint64_t, UnitEvent>> expected = {
      {1, owned(1, 1)},
      {2, owned(3, 2)},
      {2, changed(1, UnitEventKind::Released, 2)},
      {2, changed(1, UnitEventKind::GatherBegun, 3, GatherReason::Backward)},
      {3, owned(4, 1)}};
  EXPECT_EQ(read_unit_events(reader), expected);
}

TEST(RoundTrip, FileWithoutTheTablesOfLaterVersionsHasNoFailures) {
  const Folder folder;
  record(folder.file("run.tide"), {events::storage_born({0, {}, kCpu}, StorageId(1), 8)});
  trace::Database(folder.file("run.tide"), SQLITE_OPEN_READWRITE)
      .execute(
          "DROP VIEW allocations; DROP TABLE failures; DROP TABLE live_at_failure;"
          "DROP TABLE parameters; DROP TABLE optimizers; DROP TABLE units;"
          "DROP TABLE unit_storages; DROP TABLE unit_changes");
  Reader reader(folder.file("run.tide"));
  EXPECT_TRUE(reader.failures().empty());
  EXPECT_TRUE(reader.optimizer_steps().empty());
  EXPECT_TRUE(reader.units().empty());
  EXPECT_TRUE(reader.unit_events().empty());
  EXPECT_EQ(reader.storages_alive_at(1, 10).size(), 1);
}

TEST(RoundTrip, StorageClaimedAddsOpTensorAndStack) {
  const Folder folder;
  const events::Origin origin{5, ThreadId(1), kCpu};
  const std::array<int64_t, 1> shape = {6};
  const TensorFacts tensor{"float64", shape};
  Recorder recorder(folder.file("run.tide"));
  recorder.name_op(OpId(7), "aten::mm");
  for (const uint64_t id : {1, 2, 3}) {
    recorder.record(events::storage_born(origin, StorageId(id), 100, kFromAllocator), nullptr, {});
    if (id == 1) recorder.flush();  // one row is in an earlier batch, the other in this one
  }
  for (const uint64_t id : {1, 2}) {
    recorder.record(events::storage_claimed(origin, StorageId(id), kInBackward, OpId(7)), &tensor,
                    {});
  }
  recorder.close();
  Reader reader(folder.file("run.tide"));
  const auto alive = reader.storages_alive_at(5, 10);
  ASSERT_EQ(alive.size(), 3);
  for (const TraceStorage& storage : {alive[0], alive[1]}) {
    EXPECT_EQ(storage.op, "aten::mm");
    EXPECT_EQ(storage.dtype, "float64");
    EXPECT_EQ(storage.shape, "[6]");
    EXPECT_EQ(storage.category, category_at_birth(kInBackward));
  }
  EXPECT_EQ(alive[2].op, "");
  EXPECT_EQ(alive[2].category, Category::Untracked);
}

TEST(RoundTrip, FileCanBeReadWhileItIsWritten) {
  const Folder folder;
  const std::vector<Event> events = random_events(1, 1000);
  Recorder recorder(folder.file("run.tide"));
  for (const Event& event : events) recorder.record(event, nullptr, {});
  recorder.flush();
  Reader reader(folder.file("run.tide"));
  EXPECT_EQ(read_events(reader), events);
  EXPECT_FALSE(reader.is_complete());
}

}  // namespace
}  // namespace tidegauge
