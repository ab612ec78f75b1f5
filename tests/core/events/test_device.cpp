// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <string>

#include "core/events/device.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

TEST(Device, TextIsThatOfTorch) {
  EXPECT_EQ(to_string(kCpu), "cpu");
  EXPECT_EQ(to_string(kMeta), "meta");
  EXPECT_EQ(to_string(cuda(3)), "cuda:3");
  EXPECT_EQ(to_string(Device{42, 0}), "type42:0");
}

TEST(Device, ParsingIsTheInverseOfText) {
  for (int type = -128; type < 128; ++type) {
    for (const int index : {-128, -2, -1, 0, 7, 127}) {
      const Device device{static_cast<int8_t>(type), static_cast<int8_t>(index)};
      EXPECT_EQ(parse_device(to_string(device)), device) << to_string(device);
    }
  }
}

TEST(Device, InvalidTextIsReportedWithItsValue) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:128", "cuda:0x", "type", ":0"}) {
    try {
      parse_device(text);
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()),
                "invalid device '" + std::string(text) + "' (expected e.g. cpu or cuda:0)");
    }
  }
}

}  // namespace
}  // namespace tidegauge
