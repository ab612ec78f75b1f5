// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <vector>

#include "core/ledger/conditions.h"

namespace tidegauge {
namespace {

constexpr StorageId kStorage{1};

/// A ledger with one storage of 8 bytes, made with these birth facts.
struct Drain {
  Ledger ledger;

  explicit Drain(uint8_t birth_facts) {
    ledger.apply(events::storage_born({}, kStorage, 8, birth_facts));
  }
  /// The kinds of the events that the ledger applies.
  std::vector<EventKind> apply(const Event& event, Condition condition) {
    std::vector<EventKind> kinds;
    apply_if_met(event, condition, ledger, [&](const Event& each) { kinds.push_back(each.kind); });
    return kinds;
  }
};

using Kinds = std::vector<EventKind>;
Event freed() { return events::storage_freed({}, kStorage); }
Event gradient() {
  return events::storage_relabelled({}, kStorage, Role::IsGradient, Since::Birth);
}
Event born() { return events::storage_born({}, kStorage, 8); }

TEST(Conditions, EventsOfAFreedStorageAreDropped) {
  Drain drain(0);
  EXPECT_EQ(drain.apply(freed(), Condition::IsAlive), Kinds{EventKind::StorageFreed});
  EXPECT_EQ(drain.apply(freed(), Condition::IsAlive), Kinds{});
  EXPECT_EQ(drain.apply(gradient(), Condition::IsAlive), Kinds{});
  EXPECT_EQ(drain.apply(gradient(), Condition::IsTemp), Kinds{});
  EXPECT_EQ(drain.apply(freed(), Condition::IsFreedByBackward), Kinds{});
  EXPECT_EQ(drain.ledger.anomalies().total(), 0);
}

TEST(Conditions, IsTempRelabelsOnlyTemporaries) {
  EXPECT_EQ(Drain(0).apply(gradient(), Condition::IsTemp), Kinds{});
  Drain drain(kInBackward);
  EXPECT_EQ(drain.apply(gradient(), Condition::IsTemp), Kinds{EventKind::StorageRelabelled});
  EXPECT_EQ(drain.ledger.find_category(kStorage), Category::Gradient);
}

TEST(Conditions, ActivationThatABackwardFreesBecomesASavedActivation) {
  Drain drain(0);
  EXPECT_EQ(drain.apply(freed(), Condition::IsFreedByBackward),
            (Kinds{EventKind::StorageRelabelled, EventKind::StorageFreed}));
  EXPECT_EQ((*drain.ledger.peak().find({}))[Category::SavedActivation], 8);
}

TEST(Conditions, TemporaryThatABackwardFreesStaysATemporary) {
  Drain drain(kInBackward);
  EXPECT_EQ(drain.apply(freed(), Condition::IsFreedByBackward), Kinds{EventKind::StorageFreed});
  EXPECT_EQ((*drain.ledger.peak().find({}))[Category::Temp], 8);
}

TEST(Conditions, BirthOfUntrackedMemoryBecomesStorageClaimed) {
  Drain drain(kFromAllocator);
  EXPECT_EQ(drain.apply(born(), Condition::IsNew), Kinds{EventKind::StorageClaimed});
  EXPECT_EQ(drain.ledger.find_category(kStorage), Category::Activation);
  EXPECT_EQ(drain.apply(born(), Condition::IsNew), Kinds{});  // the storage is known now
  EXPECT_EQ(drain.apply(events::storage_born({}, StorageId(2), 8), Condition::IsNew),
            Kinds{EventKind::StorageBorn});
}

TEST(Conditions, SizeOfACallIsItsInputsOrOutputs) {
  Event call = events::module_enter({}, ModuleId(3), Phase::Forward);
  call.size_bytes = 64;
  EXPECT_EQ(size_of_call(call), events::module_size({}, ModuleId(3), SizeOf::Inputs, 64));
  call.kind = EventKind::ModuleExit;
  EXPECT_EQ(size_of_call(call), events::module_size({}, ModuleId(3), SizeOf::Outputs, 64));
}

}  // namespace
}  // namespace tidegauge
