// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <random>

#include "core/ledger/random_stream.h"
#include "trace/event_codec.h"

namespace tidegauge::trace {
namespace {

TEST(EventCodec, AnyEventRoundTrips) {
  std::mt19937_64 random(1);
  std::vector<CodedEvent> events;
  for (int i = 0; i < 5000; ++i) {
    CodedEvent traced;
    Event& e = traced.event;
    const auto any = [&] { return random() >> (random() % 64); };
    e.time_ns = static_cast<int64_t>(any());
    e.storage = StorageId(any());
    e.size_bytes = static_cast<int64_t>(any());
    e.module = ModuleId(static_cast<uint32_t>(any()));
    e.op = OpId(static_cast<uint32_t>(any()));
    e.stream = StreamId(static_cast<uint16_t>(any()));
    e.thread = ThreadId(static_cast<uint16_t>(any()));
    e.device = {static_cast<int8_t>(any()), static_cast<int8_t>(any())};
    e.kind = static_cast<EventKind>(any());
    e.phase = static_cast<Phase>(any());
    e.role = static_cast<Role>(any());
    e.since = static_cast<Since>(any());
    e.state = static_cast<ModuleState>(any());
    e.size_of = static_cast<SizeOf>(any());
    e.birth_facts = static_cast<uint8_t>(any());
    traced.tensor = static_cast<uint32_t>(any());
    traced.stack = static_cast<uint32_t>(any());
    events.push_back(traced);
  }
  std::vector<CodedEvent> decoded;
  ASSERT_TRUE(decode_batch(encode_batch(events), events.size(), decoded));
  EXPECT_EQ(decoded, events);
}

TEST(EventCodec, BirthAndFreeTakeAFewBytes) {
  const events::Origin origin{1000, ThreadId(1), kCpu};
  std::vector<CodedEvent> events;
  for (uint64_t i = 1; i <= 1000; ++i) {
    events.push_back({events::storage_born(origin, StorageId(i), 4096, 0, OpId(7)), 3});
    events.push_back({events::storage_freed(origin, StorageId(i))});
  }
  // kind, fields, storage, two for the size, op, tensor; kind, fields, storage.
  EXPECT_NEAR(static_cast<double>(encode_batch(events).size()), 1000 * (7 + 3), 20);
}

TEST(EventCodec, RejectsPrefixesAndForeignBytes) {
  std::vector<CodedEvent> events;
  Stream stream(3, true);
  for (int i = 0; i < 50; ++i) events.push_back({stream.next()});
  const std::vector<uint8_t> bytes = encode_batch(events);
  std::vector<CodedEvent> decoded;
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_batch({bytes.data(), size}, events.size(), decoded)) << size;
  }
  EXPECT_FALSE(decode_batch(bytes, events.size() - 1, decoded));
  EXPECT_FALSE(decode_batch(bytes, UINT64_MAX, decoded));
  const std::vector<uint8_t> ones(100, 0xff);
  EXPECT_FALSE(decode_batch(ones, 2, decoded));
}

}  // namespace
}  // namespace tidegauge::trace
