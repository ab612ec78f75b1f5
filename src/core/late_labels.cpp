// SPDX-License-Identifier: BSD-3-Clause
#include "core/late_labels.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace tidegauge {
namespace {

// One end of a correction: from here on `bytes` more in `more`, fewer in `fewer`.
struct Edge {
  uint64_t sequence;
  int64_t size_bytes;
  uint16_t device_slot;
  Category fewer;
  Category more;
};

}  // namespace

void LateLabels::settle(std::vector<StoredSplit>& splits) {
  uint64_t newest = 0;
  for (const StoredSplit& stored : splits) newest = std::max(newest, stored.sequence);
  std::vector<Edge> edges;
  for (const Correction& c : corrections_) {
    if (c.from_sequence > newest) continue;
    edges.push_back({c.from_sequence, c.size_bytes, c.device_slot, c.from, c.to});
    edges.push_back({c.to_sequence, c.size_bytes, c.device_slot, c.to, c.from});
  }
  corrections_.clear();
  first_sequence_ = UINT64_MAX;

  const auto place = [](const auto& x) { return std::tuple(x.device_slot, x.sequence); };
  const auto earlier = [&](const auto& a, const auto& b) { return place(a) < place(b); };
  std::sort(edges.begin(), edges.end(), earlier);
  std::sort(splits.begin(), splits.end(), earlier);

  // Unsigned, because partial sums of many labels may wrap although each final split is in range.
  std::array<uint64_t, kCategoryCount> owed{};
  auto edge = edges.cbegin();
  for (const StoredSplit& stored : splits) {
    // Every correction of a device ends on that device, so nothing is carried to the next one.
    for (; edge != edges.cend() && place(*edge) <= place(stored); ++edge) {
      const auto bytes = static_cast<uint64_t>(edge->size_bytes);
      owed[static_cast<size_t>(edge->fewer)] -= bytes;
      owed[static_cast<size_t>(edge->more)] += bytes;
    }
    for (size_t i = 0; i < kCategoryCount; ++i) {
      stored.split->bytes[i] =
          static_cast<int64_t>(static_cast<uint64_t>(stored.split->bytes[i]) + owed[i]);
    }
  }
}

}  // namespace tidegauge
