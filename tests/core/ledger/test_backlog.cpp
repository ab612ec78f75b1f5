// SPDX-License-Identifier: BSD-3-Clause
// A Ledger that gets its events through a Backlog must give the same answers as a Ledger that gets
// them immediately.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "core/ledger/backlog.h"
#include "equal_answers.h"
#include "random_stream.h"

namespace tidegauge {
namespace {

/// A direct implementation of the table in conditions.h.
void apply_at_once(Ledger& ledger, const Event& event, Condition condition) {
  const std::optional<StorageInfo> storage = ledger.find_storage(event.storage);
  const events::Origin origin{event.time_ns, event.thread, {}};
  if (condition == Condition::IsAlive && !storage) return;
  if (condition == Condition::IsTemp && (!storage || storage->category != Category::Temp)) return;
  if (condition == Condition::IsFreedByBackward) {
    if (!storage) return;
    if (storage->category == Category::Activation) {
      ledger.apply(events::storage_relabelled(origin, event.storage, Role::IsSavedForBackward,
                                              Since::Birth));
    }
  }
  if (condition == Condition::IsNew && storage) {
    if (storage->category != Category::Untracked) return;
    ledger.apply(events::storage_claimed(origin, event.storage, event.birth_facts, event.op));
    return;
  }
  if (condition == Condition::HasSize) {
    const bool enters = event.kind == EventKind::ModuleEnter;
    ledger.apply(events::module_size(origin, event.module,
                                     enters ? SizeOf::Inputs : SizeOf::Outputs, event.size_bytes));
    Event call = event;
    call.size_bytes = 0;
    return ledger.apply(call);
  }
  ledger.apply(event);
}

Condition draw_condition(Stream& stream, const Event& event) {
  if (!stream.one_in(2)) return Condition::None;
  switch (event.kind) {
    case EventKind::StorageBorn:
      return Condition::IsNew;
    case EventKind::StorageRelabelled:
      return stream.one_in(2) ? Condition::IsAlive : Condition::IsTemp;
    case EventKind::StorageFreed:
      return stream.one_in(2) ? Condition::IsAlive : Condition::IsFreedByBackward;
    case EventKind::ModuleEnter:
    case EventKind::ModuleExit:
      return Condition::HasSize;
    default:
      return Condition::None;
  }
}

void check_stream(uint64_t seed) {
  Stream stream(seed, /*is_hostile=*/seed % 3 == 0);
  const int mean_batch = 1 + stream.below(60);
  const int mean_wait = 1 + stream.below(4);  // 1: the backlog is queried at every event
  Ledger at_once;
  Ledger late;
  Backlog backlog;
  std::vector<Event> visited;
  std::vector<ModuleId> running;   // the innermost module at each storage event
  std::vector<ModuleId> followed;  // the same, from the backlog
  const auto follow = [&] {
    backlog.follow([&](const Event& event, const OpenCalls& calls) {
      followed.push_back(calls.innermost(event.thread));
    });
  };
  const auto apply = [&] {
    follow();
    EXPECT_EQ(followed, running);
    backlog.apply_to(late, [&](const Event& applied) { visited.push_back(applied); });
  };
  const int length = 20 + stream.below(180);
  for (int i = 0; i < length; ++i) {
    Event event = stream.next();
    const Condition condition = draw_condition(stream, event);
    if (condition == Condition::HasSize) event.size_bytes = 64 * stream.below(5);
    apply_at_once(at_once, event, condition);
    backlog.add(event, condition);
    if (is_of_storage(event.kind)) running.push_back(at_once.open_calls().innermost(event.thread));
    if (stream.one_in(mean_wait)) {
      follow();
      const ModuleId module(1 + static_cast<uint32_t>(stream.below(kModules)));
      EXPECT_EQ(backlog.has_statistics(module, late), at_once.has_statistics(module));
      const ThreadId thread(static_cast<uint16_t>(1 + stream.below(3)));
      EXPECT_EQ(backlog.open_calls().innermost(thread), at_once.open_calls().innermost(thread));
    }
    if (!stream.one_in(mean_batch)) continue;
    apply();
    EXPECT_TRUE(backlog.empty());
    expect_equal_answers(late, at_once);
    if (testing::Test::HasFailure()) return;
  }
  apply();
  expect_equal_answers(late, at_once);
  EXPECT_EQ(late.anomalies(), at_once.anomalies());
  EXPECT_EQ(late.now(), at_once.now());
  EXPECT_LE(visited.size(), late.now().sequence);  // skipped calls are not visited
}

TEST(BacklogRandom, GivesTheSameAnswersAsImmediateEvents) {
  const uint64_t streams = std::getenv("TIDEGAUGE_LONG") ? 100'000 : 3'000;
  for (uint64_t seed = 1; seed <= streams; ++seed) {
    check_stream(seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

class BacklogOfCalls : public testing::Test {
 protected:
  void add(EventKind kind, Phase phase = Phase::Forward) {
    Event event = events::make({}, kind);
    if (kind == EventKind::ModuleEnter || kind == EventKind::ModuleExit) event.module = kModule;
    event.phase = phase;
    backlog.add(event);
  }
  /// The kinds of the events that the ledger has applied.
  std::vector<EventKind> apply() {
    std::vector<EventKind> kinds;
    backlog.follow([](const Event&, const OpenCalls&) {});
    backlog.apply_to(ledger, [&](const Event& event) { kinds.push_back(event.kind); });
    return kinds;
  }

  static constexpr ModuleId kModule{7};
  Backlog backlog;
  Ledger ledger;
};

TEST_F(BacklogOfCalls, CallsBeforeARestartAreSkipped) {
  add(EventKind::ModuleEnter);
  add(EventKind::ModuleExit);
  add(EventKind::IterationBegin);
  EXPECT_EQ(apply(), std::vector{EventKind::IterationBegin});
  EXPECT_EQ(ledger.now().sequence, 3);
  EXPECT_FALSE(ledger.has_statistics(kModule));
}

TEST_F(BacklogOfCalls, CallsAfterARestartAreApplied) {
  add(EventKind::IterationBegin);
  add(EventKind::ModuleEnter);
  add(EventKind::ModuleExit);
  EXPECT_EQ(apply().size(), 3);
  EXPECT_EQ(ledger.modules(), std::vector{kModule});
}

TEST_F(BacklogOfCalls, CallAcrossARestartIsApplied) {
  add(EventKind::ModuleEnter);
  add(EventKind::IterationBegin);
  add(EventKind::ModuleExit);
  EXPECT_EQ(apply().size(), 3);
  EXPECT_EQ(ledger.anomalies().total(), 0);
  EXPECT_TRUE(ledger.has_statistics(kModule));
}

TEST_F(BacklogOfCalls, ExitOfACallInTheLedgerIsApplied) {
  add(EventKind::ModuleEnter);
  apply();
  add(EventKind::ModuleExit);
  add(EventKind::IterationBegin);
  EXPECT_EQ(apply().size(), 2);
  EXPECT_FALSE(ledger.open_calls().is_open(kModule, Phase::Forward));
}

TEST_F(BacklogOfCalls, HasLabelsOnlyWhileARelabelIsQueued) {
  const Event gradient =
      events::storage_relabelled({}, StorageId(1), Role::IsGradient, Since::Birth);
  backlog.add(gradient, Condition::IsTemp);
  EXPECT_FALSE(backlog.has_labels());
  backlog.add(gradient);
  EXPECT_TRUE(backlog.has_labels());
  apply();
  EXPECT_FALSE(backlog.has_labels());
}

TEST_F(BacklogOfCalls, IsFullBeforeItGrowsLarge) {
  while (!backlog.is_full()) add(EventKind::StepMarker);
  EXPECT_LT(backlog.footprint_bytes(), 512 * 1024);
  apply();
  EXPECT_FALSE(backlog.is_full());
}

}  // namespace
}  // namespace tidegauge
