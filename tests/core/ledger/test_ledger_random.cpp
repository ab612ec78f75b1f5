// SPDX-License-Identifier: BSD-3-Clause
// Compares the Ledger with the brute-force model on random streams: valid ones, as a tracker emits
// them, and hostile ones, as a damaged trace may contain them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "brute_force.h"
#include "equal_answers.h"
#include "random_stream.h"

namespace tidegauge {
namespace {

void expect_sane(const Snapshot& snapshot) {
  for (const DeviceSplit& device : snapshot.devices) {
    EXPECT_GT(device.split.total(), 0);
    for (const int64_t bytes : device.split.bytes) EXPECT_GE(bytes, 0);
  }
}

void check_stream(uint64_t seed) {
  const bool is_hostile = seed % 3 == 0;
  Stream stream(seed, is_hostile);
  LedgerOptions options;
  options.settle_after = static_cast<size_t>(stream.below(3) * 8);
  Ledger ledger(options);
  BruteForce model;
  std::vector<Event> events;
  const int length = 20 + stream.below(180);
  for (int i = 0; i < length; ++i) {
    const Event event = stream.next();
    events.push_back(event);
    ledger.apply(event);
    model.apply(event);
    EXPECT_EQ(ledger.current(), model.current());
    expect_sane(ledger.current());
    if (stream.one_in(60)) expect_equal_answers(ledger, model);
    if (testing::Test::HasFailure()) return;
  }
  expect_equal_answers(ledger, model);
  expect_sane(ledger.peak());
  for (size_t i = 0; i < kAnomalyCount; ++i) {
    const auto anomaly = static_cast<Anomaly>(i);
    EXPECT_EQ(ledger.anomalies().count_of(anomaly), model.anomaly_count(anomaly))
        << to_string(anomaly);
  }

  Ledger replayed;  // not read in between, so it settles late labels at other times
  for (const Event& event : events) replayed.apply(event);
  expect_equal_answers(replayed, ledger);
  EXPECT_EQ(replayed.anomalies(), ledger.anomalies());
  EXPECT_EQ(replayed.now(), ledger.now());
}

TEST(LedgerRandom, EqualsBruteForceAndReplayOnEveryStream) {
  const uint64_t streams = std::getenv("TIDEGAUGE_LONG") ? 100'000 : 3'000;
  for (uint64_t seed = 1; seed <= streams; ++seed) {
    check_stream(seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tidegauge
