// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/events/ids.h"
#include "core/util/id_set.h"

namespace tidegauge {
namespace {

TEST(IdSet, ContainsInsertedIdsUntilTheyAreErased) {
  IdSet<ModuleId> ids;
  std::set<uint32_t> expected;
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const uint32_t id = 1 + random() % 300;
    if (random() % 2 == 0) {
      ids.insert(ModuleId(id));
      expected.insert(id);
    } else {
      ids.erase(ModuleId(id));
      expected.erase(id);
    }
    const uint32_t asked = 1 + random() % 400;  // some ids are beyond the last word of the set
    EXPECT_EQ(ids.contains(ModuleId(asked)), expected.contains(asked)) << asked;
  }
}

}  // namespace
}  // namespace tidegauge
