// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "capture/memory_tracker.h"
#include "tidegauge/errors.h"
#include "trace/reader.h"
#include "trace/recorder.h"

namespace tidegauge {
namespace {

std::shared_ptr<MemoryTracker> make_tracker() {
  return MemoryTracker::create(ModuleActivity::create([](const at::Tensor&) { return ModuleId{}; }),
                               [](const at::Tensor&) { return true; });
}

TEST(Recording, TrainingInCppReplaysToTheSameState) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("recording" + std::to_string(::getpid()));
  const auto recorder = std::make_shared<Recorder>(path);
  const auto tracker = make_tracker();
  tracker->record_to(recorder);
  tracker->start();
  const at::Tensor weight = torch::ones({8, 4}, torch::requires_grad());
  const at::Tensor loss = torch::ones({2, 8}).mm(weight).sum();
  loss.backward();
  tracker->stop();
  recorder->flush();

  Reader reader(path);
  Ledger replayed;
  reader.replay(replayed);
  EXPECT_EQ(replayed.current(), tracker->current());
  EXPECT_EQ(replayed.peak(), tracker->peak());
  EXPECT_EQ(replayed.peak().find(kCpu)->bytes[static_cast<size_t>(Category::Gradient)], 128);
  bool has_weight = false;
  for (const TraceStorage& storage : reader.storages_alive_at(reader.event_count(), 100)) {
    has_weight |= storage.op == "aten::ones" || storage.shape == "[8, 4]";
  }
  EXPECT_TRUE(has_weight);
  std::filesystem::remove(path);
}

TEST(Recording, MustBeginBeforeTheFirstEvent) {
  const auto tracker = make_tracker();
  tracker->start();
  EXPECT_THROW(tracker->record_to(nullptr), UsageError);
  tracker->stop();
}

}  // namespace
}  // namespace tidegauge
