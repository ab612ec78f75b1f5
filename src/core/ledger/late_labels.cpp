// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/late_labels.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace tidegauge {
namespace {

// One end of a correction: from this sequence number on, `more` has `bytes` more and `fewer` has
// `bytes` less.
struct Edge {
  uint64_t sequence;
  int64_t size_bytes;
  uint16_t device_slot;
  Category fewer;
  Category more;
};

constexpr size_t kFewSplits = 8;  // up to this many, sorting costs more than it saves

// Unsigned, because partial sums of many labels may wrap although each final split is in range.
void add_to(CategorySplit& split, Category category, uint64_t bytes) {
  split[category] = static_cast<int64_t>(static_cast<uint64_t>(split[category]) + bytes);
}

}  // namespace

void LateLabels::correct_one(const StoredSplit& stored) const {
  for (const Correction& c : corrections_) {
    if (c.from_sequence > stored.sequence || stored.sequence >= c.to_sequence ||
        c.device_slot != stored.device_slot) {
      continue;
    }
    const auto bytes = static_cast<uint64_t>(c.size_bytes);
    add_to(*stored.split, c.from, -bytes);
    add_to(*stored.split, c.to, bytes);
  }
}

void LateLabels::settle(std::vector<StoredSplit>& splits) {
  if (splits.size() <= kFewSplits) {
    for (const StoredSplit& stored : splits) correct_one(stored);
  } else {
    sweep(splits);
  }
  corrections_.clear();
  first_sequence_ = UINT64_MAX;
}

void LateLabels::sweep(std::vector<StoredSplit>& splits) const {
  std::vector<Edge> edges;
  edges.reserve(corrections_.size() * 2);
  for (const Correction& c : corrections_) {
    edges.push_back({c.from_sequence, c.size_bytes, c.device_slot, c.from, c.to});
    edges.push_back({c.to_sequence, c.size_bytes, c.device_slot, c.to, c.from});
  }

  const auto place = [](const auto& x) { return std::tuple(x.device_slot, x.sequence); };
  const auto earlier = [&](const auto& a, const auto& b) { return place(a) < place(b); };
  std::sort(edges.begin(), edges.end(), earlier);
  std::sort(splits.begin(), splits.end(), earlier);

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
      add_to(*stored.split, static_cast<Category>(i), owed[i]);
    }
  }
}

}  // namespace tidegauge
