// SPDX-License-Identifier: BSD-3-Clause
// What a run keeps from step to step: leaks are found, and nothing else is.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "analyze/growth.h"
#include "core/events/event_factory.h"
#include "trace/memory_trace.h"

namespace tidegauge {
namespace {

constexpr events::Origin kMain{1, ThreadId(1), kCpu};

/// A training run, written step by step.
class Script {
 public:
  uint64_t make(int64_t size_bytes, uint32_t op = 1, uint32_t stack = 0) {
    const StorageId id(++last_id_);
    trace_.record(events::storage_born(kMain, id, size_bytes, 0, OpId(op)), nullptr,
                  StackId(stack));
    return id.value;
  }
  void free(uint64_t id) { record(events::storage_freed(kMain, StorageId(id))); }
  void begin_step() { record(events::step_marker(kMain)); }
  void step_optimizer() {
    record(events::optimizer_step_begin(kMain));
    record(events::optimizer_step_end(kMain));
  }
  void record(const Event& event) { trace_.record(event, nullptr, {}); }
  std::vector<Growth> growth() { return find_growth(trace_); }

 private:
  MemoryTrace trace_;
  uint64_t last_id_ = 0;
};

/// The growth of a run of `steps` steps, each with the body `each(script, step)`.
std::vector<Growth> growth_of(int steps, const std::function<void(Script&, int)>& each,
                              bool has_optimizer = true) {
  Script script;
  script.make(1000);  // the parameters
  for (int step = 1; step <= steps; ++step) {
    script.begin_step();
    const uint64_t output = script.make(100, 2);
    each(script, step);
    if (has_optimizer) script.step_optimizer();
    script.free(output);
  }
  return script.growth();
}

TEST(Growth, TensorKeptInEveryStepGrowsSinceTheSecond) {
  const auto found = growth_of(12, [](Script& script, int) { script.make(256, 7, 3); });
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].op, OpId(7));
  EXPECT_EQ(found[0].stack, 3);
  EXPECT_EQ(found[0].count, 11);  // that of step 12 may be a result of the step
  EXPECT_EQ(found[0].size_bytes, 11 * 256);
  EXPECT_EQ(found[0].since_step, 2);
  EXPECT_EQ(found[0].last_step, 12);
  EXPECT_EQ(found[0].bytes_per_step, 256);
}

TEST(Growth, ThreeStepsAreTheLeast) {
  const auto keep = [](Script& script, int) { script.make(256, 7); };
  EXPECT_EQ(growth_of(3, keep).size(), 0);
  EXPECT_EQ(growth_of(4, keep).size(), 1);
}

TEST(Growth, WithoutAnOptimizerAStepEndsWhereTheNextBegins) {
  const auto keep = [](Script& script, int) { script.make(256, 7); };
  const auto found = growth_of(6, keep, false);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].bytes_per_step, 256);
  EXPECT_EQ(found[0].count, 4);  // of steps 1 to 4: step 6 never ended
}

TEST(Growth, LeakEveryTenthStepGrowsAtATenthOfItsSize) {
  const auto found = growth_of(100, [](Script& script, int step) {
    if (step % 10 == 0) script.make(1000, 7);
  });
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].since_step, 11);
  EXPECT_EQ(found[0].last_step, 91);
  EXPECT_EQ(found[0].bytes_per_step, 9 * 1000 / 81);
}

TEST(Growth, ShapesThatDifferAreOneGroup) {
  const auto found = growth_of(9, [](Script& script, int step) { script.make(100 * step, 7); });
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].size_bytes, 100 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8));
}

TEST(Growth, StateOfTheFirstStepsDoesNotGrow) {
  EXPECT_EQ(growth_of(50,
                      [](Script& script, int step) {
                        if (step <= 5) script.make(4096, 7);  // a cache that fills in five steps
                      })
                .size(),
            0);
}

TEST(Growth, QueueOfFixedLengthDoesNotGrow) {
  std::deque<uint64_t> queue;
  EXPECT_EQ(growth_of(50,
                      [&](Script& script, int) {
                        queue.push_back(script.make(4096, 7));
                        if (queue.size() <= 8) return;
                        script.free(queue.front());
                        queue.pop_front();
                      })
                .size(),
            0);
}

TEST(Growth, ListThatIsClearedGrowsFromItsLastClearing) {
  std::vector<uint64_t> list;
  const auto found = growth_of(50, [&](Script& script, int step) {
    if (step == 41) {
      for (const uint64_t id : list) script.free(id);
      list.clear();
    }
    list.push_back(script.make(4096, 7));
  });
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].since_step, 42);
  EXPECT_EQ(found[0].count, 9);
}

TEST(Growth, OutputsOfTheStepBeforeDoNotGrowWhateverTheirSize) {
  std::deque<uint64_t> outputs;
  uint64_t size = 12345;
  EXPECT_EQ(growth_of(200,
                      [&](Script& script, int) {
                        size = size * 6364136223846793005ull + 1442695040888963407ull;
                        outputs.push_back(script.make(static_cast<int64_t>(size >> 44), 7));
                        if (outputs.size() <= 2)
                          return;  // after the step, that of the step before is alive
                        script.free(outputs.front());
                        outputs.pop_front();
                      })
                .size(),
            0);
}

TEST(Growth, FreesAfterTheLastStepDoNotHideALeak) {
  Script script;
  std::vector<uint64_t> list;
  for (int step = 1; step <= 6; ++step) {
    script.begin_step();
    list.push_back(script.make(256, 7));
    script.step_optimizer();
  }
  for (const uint64_t id : list) script.free(id);  // main() returned
  ASSERT_EQ(script.growth().size(), 1);
  EXPECT_EQ(script.growth()[0].count, 5);
}

TEST(Growth, SeveralOptimizersInAStepCountOnce) {
  const auto found = growth_of(6, [](Script& script, int) {
    script.make(256, 7);
    script.step_optimizer();
  });
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].bytes_per_step, 256);
}

}  // namespace
}  // namespace tidegauge
