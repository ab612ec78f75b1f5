// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <map>

#include "analyze/settled_labels.h"
#include "core/events/event_factory.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

using namespace events;

constexpr StorageId kStorage(1);

std::vector<StorageChange> settle(const std::vector<Event>& events) {
  SettledLabels labels;
  for (const Event& event : events) labels.learn(event);
  SettledStorages storages(labels);
  std::vector<StorageChange> changes;
  for (const Event& event : events) {
    if (const auto change = storages.apply(event)) changes.push_back(*change);
  }
  return changes;
}

TEST(SettledLabels, LabelSinceBirthIsKnownAtTheBirth) {
  const auto changes = settle({storage_born({}, kStorage, 8),
                               storage_relabelled({}, kStorage, Role::IsOptimizerState, Since::Now),
                               storage_relabelled({}, kStorage, Role::IsGradient, Since::Birth),
                               storage_relabelled({}, kStorage, Role::IsParameter, Since::Now),
                               storage_freed({}, kStorage)});
  std::vector<Category> categories;
  for (const StorageChange& change : changes) categories.push_back(change.new_category);
  EXPECT_EQ(categories, (std::vector{Category::Gradient, Category::Gradient, Category::Gradient,
                                     Category::Parameter, Category::Parameter}));
  EXPECT_TRUE(changes.front().is_birth);
  EXPECT_TRUE(changes.back().is_end);
  EXPECT_EQ(changes.back().old_bytes, 8);
  EXPECT_EQ(changes.back().new_bytes, 0);
}

TEST(SettledLabels, EventThatTheLedgerRejectsChangesNothing) {
  EXPECT_TRUE(settle({storage_freed({}, kStorage), storage_resized({}, kStorage, 4)}).empty());
  EXPECT_EQ(settle({storage_born({}, kStorage, 8), storage_born({}, kStorage, 9)}).size(), 1U);
}

TEST(SettledLabels, ReusedStorageIdStartsANewLifetime) {
  const auto changes = settle({storage_born({}, kStorage, 8), storage_freed({}, kStorage),
                               storage_born({}, kStorage, 4), storage_freed({}, kStorage)});
  EXPECT_EQ(changes[1].life, 0U);
  EXPECT_EQ(changes[3].life, 1U);
}

// The Ledger settles late labels in another way: with a log, when a peak is read.
TEST(SettledLabels, BytesByCategoryAtThePeakEqualTheLedger) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const std::vector<Event> events = random_events(seed, 3000);
    Ledger ledger = apply_all(events);
    const Snapshot peak = ledger.peak();
    SettledLabels labels;
    for (const Event& event : events) labels.learn(event);
    SettledStorages storages(labels);
    std::map<Device, CategorySplit> splits;
    uint64_t sequence = 0;
    size_t compared = 0;
    for (const Event& event : events) {
      ++sequence;
      if (const auto change = storages.apply(event)) {
        splits[change->device][change->old_category] -= change->old_bytes;
        splits[change->device][change->new_category] += change->new_bytes;
      }
      for (const DeviceSplit& device : peak.devices) {
        if (device.at.sequence != sequence) continue;
        ++compared;
        EXPECT_EQ(splits[device.device], device.split) << "seed " << seed << " event " << sequence;
      }
    }
    EXPECT_EQ(compared, peak.devices.size());
  }
}

}  // namespace
}  // namespace tidegauge
