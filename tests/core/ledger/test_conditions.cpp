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
  /// The kinds of the events that the ledger gets.
  std::vector<EventKind> apply(const Event& event, Condition condition) {
    std::vector<EventKind> kinds;
    apply_if_met(event, condition, ledger, [&](const Event& each) { kinds.push_back(each.kind); });
    return kinds;
  }
};

using Kinds = std::vector<EventKind>;
const Event kFreed = events::storage_freed({}, kStorage);
const Event kGradient = events::storage_relabelled({}, kStorage, Role::IsGradient, Since::Birth);
const Event kBorn = events::storage_born({}, kStorage, 8);

TEST(Conditions, EventsOfADeadStorageAreDropped) {
  Drain drain(0);
  EXPECT_EQ(drain.apply(kFreed, Condition::IsAlive), Kinds{EventKind::StorageFreed});
  EXPECT_EQ(drain.apply(kFreed, Condition::IsAlive), Kinds{});
  EXPECT_EQ(drain.apply(kGradient, Condition::IsAlive), Kinds{});
  EXPECT_EQ(drain.apply(kGradient, Condition::IsTemp), Kinds{});
  EXPECT_EQ(drain.apply(kFreed, Condition::IsLetGoByBackward), Kinds{});
  EXPECT_EQ(drain.ledger.anomalies().total(), 0);
}

TEST(Conditions, IsTempRelabelsOnlyTemporaries) {
  EXPECT_EQ(Drain(0).apply(kGradient, Condition::IsTemp), Kinds{});
  Drain drain(kInBackward);
  EXPECT_EQ(drain.apply(kGradient, Condition::IsTemp), Kinds{EventKind::StorageRelabelled});
  EXPECT_EQ(drain.ledger.find_category(kStorage), Category::Gradient);
}

TEST(Conditions, ActivationThatABackwardReleasesWasSaved) {
  Drain drain(0);
  EXPECT_EQ(drain.apply(kFreed, Condition::IsLetGoByBackward),
            (Kinds{EventKind::StorageRelabelled, EventKind::StorageFreed}));
  EXPECT_EQ((*drain.ledger.peak().find({}))[Category::SavedActivation], 8);
}

TEST(Conditions, TemporaryThatABackwardReleasesStaysATemporary) {
  Drain drain(kInBackward);
  EXPECT_EQ(drain.apply(kFreed, Condition::IsLetGoByBackward), Kinds{EventKind::StorageFreed});
  EXPECT_EQ((*drain.ledger.peak().find({}))[Category::Temp], 8);
}

TEST(Conditions, BirthOfMemoryThatTheAllocatorShowedIsAClaim) {
  Drain drain(kFromAllocator);
  EXPECT_EQ(drain.apply(kBorn, Condition::IsNew), Kinds{EventKind::StorageClaimed});
  EXPECT_EQ(drain.ledger.find_category(kStorage), Category::Activation);
  EXPECT_EQ(drain.apply(kBorn, Condition::IsNew), Kinds{});  // known by now
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
