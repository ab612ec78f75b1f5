// SPDX-License-Identifier: BSD-3-Clause
// The requests of a run are collected in the same passes as its summary.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "analyze/run.h"
#include "core/events/event_factory.h"
#include "fit/judge.h"
#include "fit/request_analysis.h"
#include "trace/memory_trace.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

std::shared_ptr<MemoryTrace> make_trace(const std::vector<Event>& events) {
  auto trace = std::make_shared<MemoryTrace>();
  for (const Event& event : events) trace->record(event, nullptr, {});
  return trace;
}

TEST(RequestAnalysis, CollectsTheRequestsOfADevice) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {  // every third stream is hostile
    const auto trace = make_trace(random_events(seed, 2000));
    RequestAnalysis analysis;
    const tidegauge::Run run(trace, {.others = std::array<Analysis*, 1>{&analysis}});
    const RequestStream alone = read_requests(*trace, analysis.device());
    ASSERT_EQ(analysis.requests()->request_count(), alone.request_count());
    ASSERT_EQ(analysis.requests()->simulate({}), alone.simulate({}));
  }
}

TEST(RequestAnalysis, UsesTheDeviceWithTheHighestPeakOtherThanTheCpu) {
  const auto born = [](Device device, uint64_t storage, int64_t size_bytes) {
    return events::storage_born({1, ThreadId(1), device}, StorageId(storage), size_bytes);
  };
  const auto trace = make_trace({born(kCpu, 1, 900), born(cuda(0), 2, 5), born(cuda(1), 3, 7)});
  RequestAnalysis analysis;
  RequestAnalysis wanted("cuda:0");
  analyze(*trace, std::array<Analysis*, 2>{&analysis, &wanted});
  EXPECT_EQ(analysis.device(), cuda(1));
  EXPECT_EQ(wanted.device(), cuda(0));

  RequestAnalysis unused("cuda:7");
  EXPECT_THROW(analyze(*trace, std::array<Analysis*, 1>{&unused}), UsageError);
}

TEST(RequestAnalysis, UsesTheCpuForAnEmptyRun) {
  RequestAnalysis analysis;
  analyze(*make_trace({}), std::array<Analysis*, 1>{&analysis});
  EXPECT_EQ(analysis.device(), kCpu);
  EXPECT_EQ(analysis.requests()->request_count(), 0U);
}

}  // namespace
}  // namespace tidegauge
