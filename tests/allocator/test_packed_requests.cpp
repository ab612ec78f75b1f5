// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "allocator/packed_requests.h"

namespace tidegauge {
namespace {

std::vector<Request> read(const PackedRequests& packed, size_t count) {
  std::vector<Request> found;
  packed.visit(count, [&](size_t index, const Request& request) {
    EXPECT_EQ(index, found.size());
    found.push_back(request);
  });
  return found;
}

TEST(PackedRequests, EqualAVectorOfRandomRequests) {
  std::mt19937_64 random(7);
  const auto up_to_bits = [&](int bits) { return random() >> (64 - 1 - random() % bits); };
  PackedRequests packed;
  std::vector<Request> expected;
  for (int i = 0; i < 300'000; ++i) {  // several chunks
    Request request{.sequence = i % 5 == 0 ? random() : static_cast<uint64_t>(i),
                    .slot = static_cast<uint32_t>(up_to_bits(32))};
    if (random() % 2 == 0) {
      request.size_bytes = 1 + static_cast<int64_t>(up_to_bits(62));
      request.stream = static_cast<uint16_t>(random());
    }
    packed.push_back(request);
    expected.push_back(request);
  }
  EXPECT_EQ(packed.size(), expected.size());
  EXPECT_EQ(read(packed, expected.size()), expected);
  EXPECT_EQ(read(packed, SIZE_MAX), expected);
  expected.resize(1234);
  EXPECT_EQ(read(packed, 1234), expected);
}

TEST(PackedRequests, KeepTheLargestNumbers) {
  const Request largest{.size_bytes = std::numeric_limits<int64_t>::max(),
                        .sequence = UINT64_MAX,
                        .slot = UINT32_MAX,
                        .stream = UINT16_MAX};
  const Request smallest{};
  PackedRequests packed;
  for (const Request& each : {largest, smallest, largest}) packed.push_back(each);
  EXPECT_EQ(read(packed, 3), (std::vector<Request>{largest, smallest, largest}));
}

TEST(PackedRequests, TenMillionOfARunTakeLessThanSixBytesEach) {
  PackedRequests packed;
  for (uint64_t i = 0; i < 10'000'000; ++i) {
    const int64_t size_bytes = i % 2 == 0 ? 4096 + static_cast<int64_t>(i % 1000) * 512 : 0;
    packed.push_back(
        {.size_bytes = size_bytes, .sequence = 2 * i, .slot = static_cast<uint32_t>(i / 2 % 5000)});
  }
  EXPECT_LT(packed.allocated_bytes(), size_t{60'000'000});
}

}  // namespace
}  // namespace tidegauge
