// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <optional>

#include "capture/compat/out_of_memory.h"

namespace tidegauge {
namespace {

TEST(OutOfMemory, CpuMessageHasTheExactBytes) {
  const auto failed = out_of_memory::read(
      "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
      "you tried to allocate 9007199254740993 bytes. Error code 12 (Cannot allocate memory)");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->size_bytes, 9007199254740993);  // no double has this value
  EXPECT_EQ(failed->device, "cpu");
}

TEST(OutOfMemory, GpuMessageHasRoundedBytesAndTheDevice) {
  const auto failed = out_of_memory::read(
      "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 7.79 GiB of "
      "which 93.00 MiB is free.");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->size_bytes, 3 * (int64_t{1} << 29));
  EXPECT_EQ(failed->device, "cuda:3");
}

TEST(OutOfMemory, UnreadableSizeIsUnknown) {
  const auto failed = out_of_memory::read("XPU out of memory. Tried to allocate much.");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->size_bytes, std::nullopt);
  EXPECT_EQ(failed->device, "");
}

TEST(OutOfMemory, OtherMessagesAreNotFailures) {
  EXPECT_FALSE(out_of_memory::read(""));
  EXPECT_FALSE(out_of_memory::read("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"));
  EXPECT_FALSE(out_of_memory::read("Storage size calculation overflowed with sizes=[4]"));
  EXPECT_FALSE(out_of_memory::read("the user ran out of memory and of patience"));
}

}  // namespace
}  // namespace tidegauge
