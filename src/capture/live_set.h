// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/event_sink.h"
#include "core/post_mortem.h"

namespace tidegauge {

class Ledger;

/// What is known of each live storage of a tracker beside its bytes, which the Ledger has: who made
/// it, where and as what. Kept for the day on which memory runs out, so a birth and a free cost one
/// look into a table and no allocation.
class LiveSet {
 public:
  /// After the Ledger has applied the same event. `first_tensor` may be null, its dtype is a text
  /// that lives for ever.
  void apply(const Event& event, const Ledger& ledger, const TensorFacts* first_tensor,
             StackId stack);

  struct Names {
    std::function<std::string(ModuleId)> module;
    std::function<std::string(OpId)> op;
    std::function<std::string(StackId)> stack;
  };
  /// All that the Ledger knows to be alive, the largest first.
  std::vector<LiveGroup> groups(const Ledger& ledger, const Names& names) const;

  size_t footprint_bytes() const { return births_.size() * 2 * sizeof(Birth); }

 private:
  struct Birth {
    ModuleId module;
    OpId op;
    StackId stack;
    std::string_view dtype;  // empty: no tensor is known
    c10::SmallVector<int64_t, 4> shape;
  };
  ska::flat_hash_map<StorageId, Birth> births_;
};

}  // namespace tidegauge
