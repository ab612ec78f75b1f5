// SPDX-License-Identifier: BSD-3-Clause
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <new>
#include <string>

#include "tidegauge/tidegauge.h"
#include "track/failure_printer.h"

namespace tidegauge {
namespace {

constexpr const char* kGpuMessage =
    "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 1 has a total capacity of 4.00 MiB.";

std::string printed;  // the text that would go to standard error

class AllocationFailure : public testing::Test {
 protected:
  AllocationFailure() {
    printed.clear();
    failure_printer::set_print([](const std::string& text) { printed += text; });
  }
  ~AllocationFailure() override { failure_printer::set_print(nullptr); }
};

at::Tensor throw_as_a_gpu_does(const at::Tensor&) {
  throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, kGpuMessage);
}

at::Tensor throw_bad_alloc(const at::Tensor&) { throw std::bad_alloc(); }

TORCH_LIBRARY(tidegauge_failure, library) {
  library.def("gpu(Tensor x) -> Tensor");
  library.impl("gpu", c10::DispatchKey::CPU, &throw_as_a_gpu_does);
  library.def("bad_alloc(Tensor x) -> Tensor");
  library.impl("bad_alloc", c10::DispatchKey::CPU, &throw_bad_alloc);
}

void call(const char* name, const at::Tensor& x) {
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

TEST_F(AllocationFailure, FullGpuIsReportedAndTheExceptionPropagates) {
  MemTracker tracker;
  EXPECT_EQ(tracker.render_post_mortem(), "");
  tracker.enter();
  const at::Tensor x = torch::ones({256});
  try {
    call("tidegauge_failure::gpu", x);
    FAIL() << "nothing was thrown";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_STREQ(error.what_without_backtrace(), kGpuMessage);
  }
  tracker.exit();
  EXPECT_EQ(printed, tracker.render_post_mortem());
  EXPECT_EQ(printed,
            "tidegauge: out of memory allocating 2.00 MiB on cuda:1\n"
            "  requested by tidegauge_failure::gpu\n"
            "  live memory: 0 B, and 1.00 KiB on other devices\n");
  EXPECT_EQ(tracker.failure_count(), 0);
}

TEST_F(AllocationFailure, FailureWithUnknownSizeIsReported) {
  MemTracker tracker;
  tracker.enter();
  EXPECT_THROW(call("tidegauge_failure::bad_alloc", torch::ones({1})), std::bad_alloc);
  tracker.exit();
  EXPECT_TRUE(printed.starts_with("tidegauge: out of memory on cpu\n")) << printed;
}

TEST_F(AllocationFailure, OpsWithTypedHandlersAreWatched) {
  MemTracker tracker;
  tracker.enter();
  EXPECT_THROW(torch::empty({int64_t{1} << 50}, torch::kByte), c10::Error);
  tracker.exit();
  EXPECT_TRUE(
      printed.starts_with("tidegauge: out of memory allocating 1024 TiB on cpu\n"
                          "  requested by aten::empty.memory_format\n"))
      << printed;
}

TEST_F(AllocationFailure, NothingIsReportedWithoutATracker) {
  MemTracker tracker;
  EXPECT_THROW(torch::empty({int64_t{1} << 50}, torch::kByte), c10::Error);
  EXPECT_EQ(printed, "");
  EXPECT_EQ(tracker.render_post_mortem(), "");
}

TEST(Stacks, PythonStacksAreRefusedInCpp) {
  try {
    const MemTracker tracker({.stacks = "python"});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), R"-(invalid stacks 'python' (expected "none" or "module"))-");
  }
}

}  // namespace
}  // namespace tidegauge
