// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "analyze/storage_effects.h"
#include "core/events/event_factory.h"
#include "trace/trace_files.h"

namespace tidegauge::trace {
namespace {

using namespace events;

constexpr StorageId kStorage(1);

TEST(StorageEffects, HaveTheStorageBeforeAndAfter) {
  StorageEffects effects;
  const auto born = effects.apply(storage_born({}, kStorage, 8, kFromAllocator));
  EXPECT_EQ(born->before, std::nullopt);
  EXPECT_EQ(born->after, (StorageInfo{{}, 8, Category::Untracked}));
  EXPECT_FALSE(born->is_label);

  const auto claimed = effects.apply(storage_claimed({}, kStorage, 0));
  EXPECT_EQ(claimed->after, (StorageInfo{{}, 8, Category::Activation}));
  EXPECT_TRUE(claimed->is_label && claimed->is_since_birth);

  const auto resized = effects.apply(storage_resized({}, kStorage, 12));
  EXPECT_EQ(resized->old_bytes(), 8);
  EXPECT_EQ(resized->new_bytes(), 12);

  const auto named = effects.apply(storage_relabelled({}, kStorage, Role::IsParameter, Since::Now));
  EXPECT_EQ(named->after->category, Category::Parameter);
  EXPECT_TRUE(named->is_label);
  EXPECT_FALSE(named->is_since_birth);
  EXPECT_TRUE(effects.apply(storage_relabelled({}, kStorage, Role::IsGradient, Since::Birth))
                  ->is_since_birth);

  const auto freed = effects.apply(storage_freed({}, kStorage));
  EXPECT_EQ(freed->before, (StorageInfo{{}, 12, Category::Gradient}));
  EXPECT_EQ(freed->after, std::nullopt);
  EXPECT_EQ(freed->new_bytes(), 0);
}

TEST(StorageEffects, ImpossibleEventHasNoEffect) {
  StorageEffects effects;
  effects.apply(storage_born({}, kStorage, 8));
  constexpr StorageId kUnknown(2);
  const std::vector<Event> refused = {
      storage_born({}, kStorage, 9),
      storage_born({}, StorageId(0), 9),
      storage_born({}, kUnknown, -1),
      storage_born({}, kUnknown, INT64_MAX),
      storage_born({}, kUnknown, 8, 255),
      storage_resized({}, kUnknown, 8),
      storage_resized({}, kStorage, -1),
      storage_relabelled({}, kUnknown, Role::IsGradient, Since::Now),
      storage_relabelled({}, kStorage, static_cast<Role>(kRoleCount), Since::Now),
      storage_relabelled({}, kStorage, Role::IsGradient, static_cast<Since>(2)),
      storage_claimed({}, kUnknown, 0),
      storage_claimed({}, kStorage, 255),
      storage_freed({}, kUnknown),
  };
  for (const Event& event : refused) EXPECT_EQ(effects.apply(event), std::nullopt);
  EXPECT_EQ(effects.ledger().anomalies().total(), refused.size());
  EXPECT_EQ(effects.ledger().find_storage(kStorage), (StorageInfo{{}, 8, Category::Activation}));
}

TEST(StorageEffects, OtherEventHasNoEffectButIsCounted) {
  StorageEffects effects;
  EXPECT_EQ(effects.apply(module_enter({}, ModuleId(1), Phase::Forward)), std::nullopt);
  EXPECT_EQ(effects.apply(peak_reset({})), std::nullopt);
  EXPECT_EQ(effects.ledger().now().sequence, 2U);
}

TEST(RepeatedEffects, EqualThoseOfTheFirstPass) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {  // every third stream is hostile
    StorageEffects first;
    std::vector<std::optional<StorageEffect>> expected;
    std::vector<Instant> instants;
    std::vector<uint64_t> refused;
    const std::vector<Event> events = random_events(seed, 3000);
    for (const Event& event : events) {
      expected.push_back(first.apply(event));
      instants.push_back(first.ledger().now());
      if (!expected.back() && is_of_storage(event.kind)) refused.push_back(expected.size());
    }
    RepeatedEffects repeated(refused);
    std::map<StorageId, uint32_t> places;
    for (size_t i = 0; i < events.size(); ++i) {
      const StorageEffect* effect = repeated.apply(events[i]);
      ASSERT_EQ(effect != nullptr, expected[i].has_value()) << "seed " << seed << ", event " << i;
      ASSERT_EQ(repeated.now(), instants[i]);
      if (effect == nullptr) continue;
      ASSERT_EQ(*effect, *expected[i]) << "seed " << seed << ", event " << i;
      if (!effect->before) {
        for (const auto& [other, place] : places) ASSERT_NE(place, repeated.place());
        places[events[i].storage] = repeated.place();
      }
      ASSERT_EQ(places.at(events[i].storage), repeated.place());
      if (!effect->after) places.erase(events[i].storage);
    }
  }
}

}  // namespace
}  // namespace tidegauge::trace
