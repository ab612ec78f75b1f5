// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "core/ledger/post_mortem.h"

namespace tidegauge {
namespace {

TEST(ReadFailedAllocation, CpuAllocatorTellsBytesToTheLast) {
  const auto failed = read_failed_allocation(
      "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
      "you tried to allocate 9007199254740993 bytes. Error code 12 (Cannot allocate memory)");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->size_bytes, 9007199254740993);  // no double has this value
  EXPECT_EQ(failed->device, "cpu");
}

TEST(ReadFailedAllocation, GpuTellsRoundedBytesAndItsNumber) {
  const auto failed = read_failed_allocation(
      "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 7.79 GiB of "
      "which 93.00 MiB is free.");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->size_bytes, 3 * (int64_t{1} << 29));
  EXPECT_EQ(failed->device, "cuda:3");
}

TEST(ReadFailedAllocation, SizeThatMakesNoSenseIsUnknown) {
  const auto failed = read_failed_allocation("XPU out of memory. Tried to allocate much.");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->size_bytes, std::nullopt);
  EXPECT_EQ(failed->device, "");
}

TEST(ReadFailedAllocation, OtherMessagesAreNone) {
  EXPECT_FALSE(read_failed_allocation(""));
  EXPECT_FALSE(read_failed_allocation("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"));
  EXPECT_FALSE(read_failed_allocation("Storage size calculation overflowed with sizes=[4]"));
  EXPECT_FALSE(read_failed_allocation("the user ran out of memory and of patience"));
}

PostMortem example() {
  PostMortem example{.step = 2,
                     .failed = {int64_t{1} << 42, "cpu"},
                     .op = "aten::mm",
                     .module = "Net.fc",
                     .message = "no memory",
                     .live = {}};
  example.live = {
      {"cpu", Category::Activation, "Net.fc", "aten::mm", "float32", "[2, 1024]", "", 3, 24576},
      {"cpu", Category::Parameter, "", "", "float32", "[1024]", "", 2, 8192},
      {"cpu", Category::Activation, "Net", "aten::mm", "float32", "[2, 1024]", "", 1, 8192},
      {"meta", Category::Other, "", "", "float32", "[1]", "", 1, 2048},
  };
  return example;
}

TEST(RenderPostMortem, SumsByCategoryModuleAndTensorOfTheFailedDevice) {
  EXPECT_EQ(render_post_mortem(example()),
            R"(tidegauge: no memory for 4.00 TiB on cpu
  asked for by aten::mm in Net.fc, in step 2
  alive at that moment: 40.0 KiB, and 2.00 KiB on other devices

  by category
    32.0 KiB   80 %      4 x  Activation
    8.00 KiB   20 %      2 x  Parameter

  by module that made it
    24.0 KiB   60 %      3 x  Net.fc
    8.00 KiB   20 %      2 x  (outside of modules)
    8.00 KiB   20 %           Net

  by tensor
    32.0 KiB   80 %      4 x  float32 [2, 1024] aten::mm
    8.00 KiB   20 %      2 x  float32 [1024]

  the largest that could go
    24.0 KiB   60 %      3 x  Activation: Net.fc
    8.00 KiB   20 %           Activation: Net
  Activation: take a smaller batch, or checkpoint the modules that made most
)");
  EXPECT_EQ(live_bytes(example()), 40960 + 2048);
}

TEST(RenderPostMortem, FitsInEightyColumnsAndTellsWhatItLeavesOut) {
  PostMortem many;
  for (int i = 0; i < 30; ++i) {
    many.live.push_back({"cpu", Category::Gradient, std::string(100, 'm') + std::to_string(i),
                         "aten::" + std::string(90, 'o'), "float32", "[" + std::to_string(i) + "]",
                         "", 1, 1 << 20});
  }
  std::istringstream lines(render_post_mortem(many));
  int more = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80) << line;
    if (line.ends_with("22.0 MiB   73 %     22 x  (22 more)")) ++more;
  }
  EXPECT_EQ(more, 3);  // modules, tensors, what could go
}

}  // namespace
}  // namespace tidegauge
