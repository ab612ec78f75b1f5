// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <set>

#include "tidegauge/fit.h"

namespace tidegauge {
namespace {

TEST(DeviceCatalogue, IsSortedByMemoryAndComplete) {
  const std::vector<DeviceModel>& models = device_catalogue();
  std::set<std::string> keys;
  int64_t last_bytes = 0;
  for (const DeviceModel& model : models) {
    EXPECT_GE(model.memory_bytes, last_bytes);
    last_bytes = model.memory_bytes;
    EXPECT_FALSE(model.name.empty());
    EXPECT_FALSE(model.source.empty()) << model.key;
    EXPECT_GE(model.compute, 7);
    EXPECT_LE(model.compute, 12);
    keys.insert(model.key);
  }
  EXPECT_EQ(keys.size(), models.size());
  EXPECT_GE(models.size(), 10);
}

TEST(DeviceCatalogue, KeysIgnoreCase) {
  ASSERT_NE(find_device("H100-80G"), nullptr);
  EXPECT_EQ(find_device("H100-80G")->memory_bytes, int64_t{81004} << 20);
  EXPECT_EQ(find_device("h100-80g")->compute, 9);
  EXPECT_EQ(find_device("h100"), nullptr);
  EXPECT_EQ(find_device(""), nullptr);
}

}  // namespace
}  // namespace tidegauge
