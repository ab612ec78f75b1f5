// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "core/ledger/ledger.h"
#include "core/ledger/random_stream.h"
#include "trace/gap.h"

namespace tidegauge::trace {
namespace {

bool is_of_storage(const Event& event) {
  return event.kind <= EventKind::StorageFreed || event.kind == EventKind::StorageClaimed;
}

std::vector<std::pair<Device, CategorySplit>> splits(const Snapshot& snapshot) {
  std::vector<std::pair<Device, CategorySplit>> splits;
  for (const DeviceSplit& device : snapshot.devices)
    splits.push_back({device.device, device.split});
  return splits;
}

/// Returns the next events that the ledger accepts.
Event next_believed(Stream& stream, Ledger& ledger) {
  while (true) {
    const Event event = stream.next();
    if (!is_of_storage(event)) continue;
    const auto refused = ledger.anomalies().total();
    ledger.apply(event);
    if (ledger.anomalies().total() == refused) return event;
  }
}

TEST(Gap, NetEventsHaveTheSameEffectAndCorrectEarlierLabels) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Stream stream(seed, false);
    Ledger whole;
    Ledger folded;
    for (int i = 0; i < 60; ++i) folded.apply(next_believed(stream, whole));
    // The peak is before the gap, on every device, with all live storages.
    for (const Device device : {kCpu, cuda(0), kMeta}) {
      for (Ledger* ledger : {&whole, &folded}) {
        ledger->apply(events::storage_born({0, {}, device}, StorageId(100), int64_t{1} << 40));
        ledger->apply(events::storage_freed({0, {}, device}, StorageId(100)));
      }
    }
    Gap first;
    Gap second;
    for (int i = 0; i < 60; ++i) (i < 30 ? first : second).add({next_believed(stream, whole)});
    first.add(second);
    EXPECT_EQ(first.lost_events(), 60);
    for (const CodedEvent& traced : first.net()) folded.apply(traced.event);

    EXPECT_EQ(folded.anomalies().total(), 0) << folded.anomalies().first();
    EXPECT_EQ(splits(folded.peak()), splits(whole.peak()));
    EXPECT_EQ(folded.storage_count(), whole.storage_count());
    for (uint64_t id = 1; id <= kStorages; ++id) {
      EXPECT_EQ(folded.find_storage(StorageId(id)), whole.find_storage(StorageId(id)));
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tidegauge::trace
