// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include "core/ledger/ledger.h"
#include "random_stream.h"

namespace tidegauge {

/// All answers of a Ledger or of the model.
template <typename Source, typename Other>
void expect_equal_answers(Source& ledger, Other& other) {
  EXPECT_EQ(ledger.current(), other.current());
  EXPECT_EQ(ledger.peak(), other.peak());
  EXPECT_EQ(ledger.modules(), other.modules());
  EXPECT_EQ(ledger.step_peaks(), other.step_peaks());
  EXPECT_EQ(ledger.storage_count(), other.storage_count());
  for (uint32_t m = 0; m <= kModules; ++m) {
    const ModuleStats mine = ledger.module_stats(ModuleId(m));
    const ModuleStats theirs = other.module_stats(ModuleId(m));
    EXPECT_EQ(mine.sizes, theirs.sizes);
    for (size_t state = 0; state < kModuleStateCount; ++state) {
      EXPECT_TRUE(mine.snapshots[state] == theirs.snapshots[state])
          << "module " << m << ", " << to_string(static_cast<ModuleState>(state));
    }
  }
  for (uint64_t s = 0; s <= kStorages; ++s) {
    EXPECT_EQ(ledger.find_storage(StorageId(s)), other.find_storage(StorageId(s)));
  }
}

}  // namespace tidegauge
