// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/version.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "tidegauge/tidegauge.h"
#include "trace/reader.h"
#include "trace/recorder.h"
#include "track/mem_engine.h"

namespace tidegauge {
namespace {

std::shared_ptr<MemEngine> make_tracker() {
  return MemEngine::create(ModuleActivity::create([](const at::Tensor&) { return ModuleId{}; }),
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
    has_weight |= storage.op == "aten::ones" && storage.shape == "[8, 4]";
  }
  EXPECT_TRUE(has_weight);
  std::filesystem::remove(path);
}

TEST(Recording, CppMemTrackerRecordsStepsModulesAndUntrackedMemory) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("mem_tracker" + std::to_string(::getpid()));
  {
    MemTracker tracker({.allocator = true, .record = path, .stacks = "module"});
    torch::nn::Sequential net(torch::nn::Linear(4, 8));
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    tracker.track_external(net, sgd);
    tracker.enter();
    for (int i = 0; i < 3; ++i) {
      sgd.zero_grad();
      call(net, torch::ones({2, 4})).sum().backward();
      step(sgd);
    }
    tracker.exit();
    EXPECT_EQ(tracker.lost_event_count(), 0) << tracker.first_loss();
    EXPECT_THROW(MemTracker({.record = path}), IoError);

    Reader reader(path);
    EXPECT_FALSE(reader.is_complete());
    EXPECT_EQ(reader.run_facts().at("torch_version"), TORCH_VERSION);
    Ledger replayed;
    reader.replay(replayed);
    const MemSnapshot live = tracker.get_tracker_snapshot("peak");
    EXPECT_EQ(replayed.peak().total_bytes(kCpu), live.total_bytes(c10::kCPU));
    EXPECT_EQ(replayed.now().step, 3);
    EXPECT_EQ(replayed.step_peaks().size(), 3);
    // Modules that were called, and modules that own parameters.
    std::map<std::string, std::string> classes;
    std::map<ModuleId, std::string> module_names;
    for (const TraceModule& module : reader.modules()) {
      classes[module.name] = module.class_name;
      module_names[module.id] = module.name;
    }
    EXPECT_EQ(classes, (std::map<std::string, std::string>{
                           {"Sequential", "torch::nn::SequentialImpl"}, {"Sequential.0", ""}}));
    EXPECT_EQ(reader.optimizer_steps(), (std::map<std::string, int64_t>{{"torch::optim::SGD", 3}}));
    bool has_momentum = false;
    bool has_gradient = false;
    for (const TraceStorage& storage : reader.storages_alive_at(reader.event_count(), 100)) {
      has_momentum |= storage.category == Category::Optstate && storage.shape == "[8, 4]" &&
                      storage.dtype == "float32" && !storage.op.empty() && storage.step == 1 &&
                      module_names[storage.module] == "Sequential.0";
      has_gradient |= storage.category == Category::Gradient && storage.shape == "[8, 4]" &&
                      storage.stack == "Sequential";
    }
    EXPECT_TRUE(has_momentum);
    EXPECT_TRUE(has_gradient);
  }
  EXPECT_TRUE(Reader(path).is_complete());
  std::filesystem::remove(path);
}

TEST(Recording, NamesOfModulesAndTensorsAreInTheTrace) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("names" + std::to_string(::getpid()));
  std::map<std::string, std::string> names;  // by shape
  {
    MemTracker tracker({.record = path});
    torch::nn::BatchNorm1d norm(6);
    torch::nn::Linear linear(4, 8);
    const at::Tensor inputs = torch::ones({2, 4});
    tracker.track_external("inputs", inputs);
    tracker.track_external("encoder", linear);
    tracker.track_external(norm);
    tracker.track_external("nothing", at::Tensor());
    tracker.enter();
    call(linear, inputs);
    call(norm, torch::ones({2, 6}));
    tracker.exit();
    Reader reader(path);
    std::map<std::string, std::string> classes;
    for (const TraceModule& module : reader.modules()) classes[module.name] = module.class_name;
    EXPECT_EQ(classes,
              (std::map<std::string, std::string>{{"encoder", "torch::nn::LinearImpl"},
                                                  {"BatchNorm1d", "torch::nn::BatchNorm1dImpl"}}));
    for (const TraceStorage& storage : reader.storages_alive_at(reader.event_count(), 100)) {
      if (!storage.parameter.empty()) names[storage.shape] += storage.parameter + " ";
    }
  }
  EXPECT_EQ(names["[2, 4]"], "inputs ");
  EXPECT_EQ(names["[8, 4]"], "encoder.weight ");
  EXPECT_EQ(names["[8]"], "encoder.bias ");
  EXPECT_EQ(names["[]"], "BatchNorm1d.num_batches_tracked ");
  for (const char* own : {"weight", "bias", "running_mean", "running_var"}) {
    EXPECT_NE(names["[6]"].find(std::string("BatchNorm1d.") + own + " "), std::string::npos) << own;
  }
  EXPECT_EQ(names.size(), 5);
  std::filesystem::remove(path);
}

TEST(Recording, OpThatOnlyObservesAStorageIsNotItsMaker) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("found" + std::to_string(::getpid()));
  const at::Tensor unknown = torch::ones({3});
  const at::Tensor known_to_another_tracker = [] {
    const auto another = make_tracker();
    another->start();
    const at::Tensor made = torch::ones({5});
    another->stop();
    return made;
  }();
  const auto recorder = std::make_shared<Recorder>(path);
  const auto tracker = make_tracker();
  tracker->record_to(recorder);
  tracker->start();
  const auto views = std::array{unknown.view({3, 1}), known_to_another_tracker.view({5, 1})};
  tracker->stop();
  recorder->flush();

  std::map<std::string, std::string> ops;
  Reader reader(path);
  for (const TraceStorage& storage : reader.storages_alive_at(reader.event_count(), 100)) {
    ops[storage.shape] = storage.op;
  }
  EXPECT_EQ(ops, (std::map<std::string, std::string>{{"[3, 1]", ""}, {"[5, 1]", ""}}));
  std::filesystem::remove(path);
}

TEST(Recording, RecorderServesOneTracker) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("one_tracker" + std::to_string(::getpid()));
  const auto recorder = std::make_shared<Recorder>(path);
  make_tracker()->record_to(recorder);
  EXPECT_THROW(make_tracker()->record_to(recorder), UsageError);
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
